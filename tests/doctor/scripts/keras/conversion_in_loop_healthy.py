"""The script converts the array to a backend tensor once. Batches are slices of this tensor."""

import keras
import numpy as np

x = keras.ops.convert_to_tensor(np.random.default_rng(0).random((2560, 16384), dtype="float32"))
y = x[:, :1]
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
for step in range(40):
    rows = slice(step * 64, (step + 1) * 64)
    model.train_on_batch(x[rows], y[rows])
