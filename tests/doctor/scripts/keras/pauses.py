"""A callback saves the model every 20 batches."""

import tempfile

import keras
import numpy as np


class Saver(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch, logs=None):
        if batch % 20 == 19:
            self.model.save(self.path)


model = keras.Sequential([keras.layers.Dense(512, "relu"), keras.layers.Dense(512, "relu"), keras.layers.Dense(64)])
model.compile("sgd", "mse")
x, y = np.random.rand(260 * 64, 64).astype("float32"), np.random.rand(260 * 64, 64).astype("float32")
with tempfile.TemporaryDirectory() as folder:
    model.fit(x, y, batch_size=64, verbose=0, callbacks=[Saver(f"{folder}/model.keras")])
