"""Keras compiles the training step of the model."""

import keras
import numpy as np

x = np.random.rand(1920, 200).astype("float32")
y = np.random.rand(1920, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(128, activation="relu") for _ in range(4)] + [keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=64, verbose=0)
