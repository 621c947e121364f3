"""The script computes all rows once, before `fit`."""

import keras
import numpy as np

signals = np.random.default_rng(0).normal(size=(64 * 60, 2000))
x = np.sort(np.abs(np.fft.fft(signals)), axis=1).astype("float32")
model = keras.Sequential([keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1].copy(), batch_size=64, verbose=0)
