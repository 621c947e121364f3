"""A constant table stays on the device, and every iteration multiplies it there."""

import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
device, side, passes = ("/GPU:0", 4096, 2000) if on_gpu else ("/CPU:0", 512, 100)
table = tf.random.normal((side, side))
with tf.device(device):
    table = tf.identity(table)

for _ in range(passes):
    likeness = tf.matmul(table, table, transpose_b=True)
    likeness = tf.identity(likeness)
answer = likeness.shape
