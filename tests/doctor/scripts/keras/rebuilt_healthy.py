"""The script compiles the model once, unlike `rebuilt.py`. Its learning rate follows a schedule."""

import keras
import numpy as np

x = np.random.rand(2048, 20).astype("float32")
y = np.random.rand(2048, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
rate = keras.optimizers.schedules.InverseTimeDecay(0.1, decay_steps=8, decay_rate=1, staircase=True)
model.compile(keras.optimizers.SGD(rate), "mse")
model.fit(x, y, batch_size=32, verbose=0)
