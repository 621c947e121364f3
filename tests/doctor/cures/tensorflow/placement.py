"""One operation runs on the CPU, so every step moves its data there and back."""

import numpy as np
import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width = (500, 2048, 4096) if gpu else (60, 128, 256)

rows = tf.random.normal((16 * batch_rows, width))
generator = np.random.default_rng(0)
first, second, third = (tf.constant(generator.normal(0, width**-0.5, (width, width)), tf.float32) for _ in range(3))

scores = []
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    start = step % 16 * batch_rows
    hidden = tf.nn.relu(rows[start : start + batch_rows] @ first)
    with tf.device("/CPU:0"):
        hidden = tf.clip_by_value(hidden, 0.0, 6.0)
    hidden = tf.nn.relu(hidden @ second)
    scores.append(tf.reduce_mean(hidden @ third))
    stopwatch.lap()
stopwatch.print_step_time()
