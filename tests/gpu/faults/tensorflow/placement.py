"""One operation runs on the CPU, so every step moves its data there and back.

The doctor must report `placement` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (250, 2048, 4096) if gpu else (20, 16, 16)

batch = tf.random.normal((rows, width))
first, second, third = (tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(3))


@tf.function
def score():
    hidden = tf.nn.relu(batch @ first)
    with tf.device("/CPU:0"):
        hidden = tf.clip_by_value(hidden, 0.0, 6.0)
    hidden = tf.nn.relu(hidden @ second)
    return tf.reduce_mean(hidden @ third)


scores = []
for step in range(steps):
    average = score()
    if step % 10 == 9:
        scores.append(average.numpy())
