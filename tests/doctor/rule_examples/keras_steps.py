"""Keras calls its compiled training function once for each short step."""

import keras
import numpy as np

x = np.random.rand(16_384, 128).astype("float32")
y = np.random.rand(16_384, 1).astype("float32")
model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=64, verbose=0)
