"""Batches are large enough to outweigh the overhead of a step."""

import keras
import numpy as np

x = np.random.rand(80 * 256, 200).astype("float32")
y = np.random.rand(80 * 256, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=256, verbose=0)
