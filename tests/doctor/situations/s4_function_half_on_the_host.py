"""Inside a compiled function, the device adds two tables and the host computes square roots."""

import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
rows = 16_000 if on_gpu else 2000
device = tf.config.list_logical_devices()[-1].name


@tf.function
def root_of_sum(left, right):
    with tf.device(device):
        total = left + right
    with tf.device("/CPU:0"):
        return tf.sqrt(total)


with tf.device(device):
    left, right = tf.random.uniform((rows, 500)), tf.random.uniform((rows, 500))
for _ in range(100):
    root = root_of_sum(left, right)
answer = float(tf.reduce_sum(root))
