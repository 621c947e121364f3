"""TensorFlow uploads a constant road matrix in every step, because it is a NumPy array."""

import keras
import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, places, width = (500, 96, 1536, 128) if gpu else (60, 4, 128, 16)

roads = np.random.default_rng(0).dirichlet(np.ones(places), places).astype("float32")
traffic = [tf.random.normal((batch_rows, places, width)) for _ in range(8)]
first, second, last = keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu"), keras.layers.Dense(1)
for layer in (first, second, last):
    layer.build((None, None, width))
variables = [variable for layer in (first, second, last) for variable in layer.trainable_variables]
optimizer = keras.optimizers.SGD(1e-3)
optimizer.build(variables)


@tf.function
def train(roads, batch):
    with tf.GradientTape() as tape:
        hidden = second(tf.matmul(roads, first(tf.matmul(roads, batch))))
        loss = tf.reduce_mean((last(hidden) - 1) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    loss = train(roads, traffic[step % 8])
    stopwatch.lap()
stopwatch.print_step_time()
