"""A Forebay feed assembles and uploads batches of the arrays before the model needs them."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

import forebay as fb

gpu = bool(tf.config.list_physical_devices("GPU"))
epochs, epoch_steps, batch_rows, side, width = (6, 80, 256, 64, 4096) if gpu else (4, 20, 32, 16, 128)

rows = epoch_steps * batch_rows
x = np.random.default_rng(0).random((rows, side, side, 3), dtype="float32")
y = np.random.default_rng(1).random((rows, 1), dtype="float32")
layers = [keras.layers.Flatten(), keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu")]
model = keras.Sequential([keras.Input(x.shape[1:]), *layers, keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-3), "mse")

feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(batch_rows).feed("keras")
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
epoch_ends = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: stopwatch.block((epoch + 1) * epoch_steps))
model.fit(feed, epochs=epochs, verbose=0, callbacks=[epoch_ends])
stopwatch.print_step_time()
