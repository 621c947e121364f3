"""The loop adds 10 x 10 matrices. Each call from Python does very little work."""

import tensorflow as tf

left = tf.random.normal((10, 10))
right = tf.random.normal((10, 10))

additions = 60_000 if tf.config.list_physical_devices("GPU") else 15_000
for _ in range(additions):
    total = left + right
answer = float(tf.reduce_sum(total))
