"""`tf.function` compiles the training step, which eager.py runs operation by operation."""

import keras
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width, depth = (320, 1024, 1024, 8) if gpu else (60, 32, 64, 8)

rows = tf.random.normal((64 * batch_rows, width))
model = keras.Sequential([keras.Input((width,)), *[keras.layers.Dense(width, "relu") for _ in range(depth)]])
optimizer = keras.optimizers.Adam(1e-4)
optimizer.build(model.trainable_variables)


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch) - batch) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    start = step % 64 * batch_rows
    loss = train(rows[start : start + batch_rows])
    stopwatch.lap()
stopwatch.print_step_time()
