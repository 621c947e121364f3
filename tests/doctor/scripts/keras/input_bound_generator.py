"""A Python generator computes each batch while the model waits for it."""

import keras
import numpy as np


def batches():
    numbers = np.random.default_rng(0)
    while True:
        x = np.sort(np.abs(np.fft.fft(numbers.normal(size=(64, 2000)))), axis=1).astype("float32")
        yield x, x[:, :1]


model = keras.Sequential([keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=60, verbose=0)
