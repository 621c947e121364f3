"""The device counts the codebook entries in use. The loop reads back only their number."""

import tensorflow as tf
from stopwatch import Stopwatch

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, patches, width, codes = (2500, 1 << 20, 48, 256) if gpu else (60, 1 << 15, 12, 32)

tf.random.set_seed(0)
pictures = [tf.random.normal((patches, width)) for _ in range(4)]
encoder = tf.Variable(tf.random.normal((width, width), stddev=width**-0.5))
book = tf.Variable(tf.random.normal((codes, width)))


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        hidden = tf.nn.gelu(batch @ encoder)
        nearest = tf.argmax(hidden @ tf.transpose(book) - tf.reduce_sum(book**2, axis=1) / 2, axis=1)
        loss = tf.reduce_mean((hidden - tf.gather(book, nearest)) ** 2)
    encoder.assign_sub(1e-3 * tape.gradient(loss, encoder))
    return nearest


@tf.function
def count(nearest):
    found = tf.math.unsorted_segment_sum(tf.ones((patches,)), nearest, codes)
    return tf.math.count_nonzero(found)


in_use = []
stopwatch = Stopwatch(tf.test.experimental.sync_devices)
for step in range(steps):
    nearest = train(pictures[step % 4])
    in_use.append(int(count(nearest)))
    stopwatch.lap()
stopwatch.print_step_time()
