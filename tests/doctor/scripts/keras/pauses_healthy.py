"""The script saves the model once, after training."""

import tempfile

import keras
import numpy as np

model = keras.Sequential([keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"), keras.layers.Dense(64)])
model.compile("sgd", "mse")
x, y = np.random.rand(260 * 64, 64).astype("float32"), np.random.rand(260 * 64, 64).astype("float32")
with tempfile.TemporaryDirectory() as folder:
    model.fit(x, y, batch_size=64, verbose=0)
    model.save(f"{folder}/model.keras")
