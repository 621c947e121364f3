"""The CPU rounds the encoder's codes, so they move there and back in every step."""

import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width, narrow = (500, 4096, 4096, 512) if gpu else (60, 128, 256, 32)

rows = tf.random.normal((8 * batch_rows, width))
sizes = [(width, width)] * 4 + [(width, narrow), (narrow, width), (width, width), (width, width)]
weights = [tf.random.normal(size, 0, size[0] ** -0.5) for size in sizes]

errors = []
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    start = step % 8 * batch_rows
    batch = hidden = rows[start : start + batch_rows]
    for weight in weights[:5]:
        hidden = tf.nn.elu(hidden @ weight)
    with tf.device("/CPU:0"):
        hidden = tf.round(hidden * 8) / 8
    for weight in weights[5:]:
        hidden = tf.nn.elu(hidden @ weight)
    errors.append(tf.reduce_mean((hidden - batch) ** 2))
    stopwatch.lap()
stopwatch.print_step_time()
