"""The loop recompiles the model to change its learning rate, so Keras traces `fit` again."""

import keras
import numpy as np

x = np.random.rand(2048, 20).astype("float32")
y = np.random.rand(2048, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
for part in range(8):
    model.compile(keras.optimizers.SGD(0.1 / (part + 1)), "mse")
    model.fit(x[part * 256 :][:256], y[part * 256 :][:256], batch_size=32, verbose=0)
