"""The loop pads all sentences to one length, so Keras compiles the model once."""

import keras
import numpy as np

model = keras.Sequential([keras.layers.Dense(8), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=True)
for length in range(10, 18):
    sentences = np.pad(np.random.rand(16, length, 4).astype("float32"), [(0, 0), (0, 30 - length), (0, 0)])
    model.train_on_batch(sentences, np.ones((16, 1), "float32"))
