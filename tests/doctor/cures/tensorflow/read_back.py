"""The loop waits for the loss in every step before the host does other work."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width = (1000, 4096, 4096) if gpu else (60, 128, 256)

rows = tf.random.normal((16 * batch_rows, width))
readings = np.random.default_rng(0).random((64, 256, 1024 if gpu else 64), dtype="float32")  # for work of the host
layers = [keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((width,)), *layers])
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build(model.trainable_variables)


@tf.function
def train():
    drawn = tf.random.uniform((batch_rows,), maxval=len(rows), dtype=tf.int64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(tf.gather(rows, drawn)) - 1) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


losses, spread = [], []
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    loss = train()
    losses.append(loss.numpy())
    spread.append(np.log1p(readings[step % len(readings)]).std(axis=0))  # work of the host
    stopwatch.lap()
stopwatch.print_step_time()
