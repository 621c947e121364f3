"""In every iteration, the device adds two tables and the host computes square roots."""

import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
rows = 16_000 if on_gpu else 2000
device = tf.config.list_logical_devices()[-1].name

with tf.device(device):
    left, right = tf.random.uniform((rows, 500)), tf.random.uniform((rows, 500))
for _ in range(100):
    with tf.device(device):
        total = left + right
    with tf.device("/CPU:0"):
        root = tf.sqrt(total)
answer = float(tf.reduce_sum(root))
