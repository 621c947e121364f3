"""The array stays on the device, and the loop gathers its batches there."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, batch_rows, width = (400, 65_536, 2048, 2048) if gpu else (60, 6000, 128, 256)

generator = np.random.default_rng(0)
images = tf.convert_to_tensor(generator.random((rows, width), dtype="float32"))
layers = [keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((width,)), *layers])
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build(model.trainable_variables)


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for _ in range(steps):
    drawn = generator.integers(0, rows, batch_rows)
    batch = tf.gather(images, drawn)
    loss = train(batch)
    stopwatch.lap()
stopwatch.print_step_time()
