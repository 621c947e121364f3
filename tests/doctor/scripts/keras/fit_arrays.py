"""Keras fits a model to NumPy arrays."""

import keras
import numpy as np

x = np.random.rand(2000, 32).astype("float32")
y = np.random.rand(2000, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=32, epochs=2, verbose=0)
