"""After every batch, a callback converts the history of all batches to an array."""

import keras
import numpy as np


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rows, self.mean = [], 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.rows += [[float(batch), float(number)] for number in range(60)]
        self.mean = np.array(self.rows).mean()


model = keras.Sequential([keras.layers.Dense(512, "relu"), keras.layers.Dense(64)])
model.compile("sgd", "mse")
x, y = np.random.rand(400 * 64, 64).astype("float32"), np.random.rand(400 * 64, 64).astype("float32")
model.fit(x, y, batch_size=64, verbose=0, callbacks=[Recorder()])
