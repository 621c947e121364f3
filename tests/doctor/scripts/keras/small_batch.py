"""Every batch has only one row."""

import keras
import numpy as np

x = np.random.rand(80, 20).astype("float32")
y = np.random.rand(80, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=1, verbose=0)
