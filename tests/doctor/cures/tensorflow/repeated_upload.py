"""The loop converts constant positions to a tensor in every step."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width = (1200, 2048, 2048) if gpu else (60, 128, 256)

positions = np.random.default_rng(0).random((batch_rows, width), dtype="float32")
tokens = tf.random.normal((16 * batch_rows, width))
layers = [keras.layers.Dense(width, "gelu"), keras.layers.Dense(width, "gelu"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((width,)), *layers])
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build(model.trainable_variables)


@tf.function
def train(batch, offsets):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch + offsets) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    start = step % 16 * batch_rows
    offsets = tf.convert_to_tensor(positions)
    loss = train(tokens[start : start + batch_rows], offsets)
    stopwatch.lap()
stopwatch.print_step_time()
