"""The loop multiplies 10 x 10 matrices. Each call from Python does very little work."""

import tensorflow as tf

left = tf.random.normal((10, 10))
right = tf.random.normal((10, 10))

products = 30_000 if tf.config.list_physical_devices("GPU") else 10_000
for _ in range(products):
    total = tf.matmul(left, right)
answer = float(tf.reduce_sum(total))
