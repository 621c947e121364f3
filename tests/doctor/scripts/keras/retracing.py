"""Sentences have different lengths, and Keras compiles the model for each length."""

import keras
import numpy as np

model = keras.Sequential([keras.layers.Dense(8), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=True)
for length in range(10, 18):
    model.train_on_batch(np.random.rand(16, length, 4).astype("float32"), np.ones((16, 1), "float32"))
