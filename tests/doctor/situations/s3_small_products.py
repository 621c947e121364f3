"""Two matrices of ten by ten are multiplied very often: each time one call from Python, for next to no work."""

import tensorflow as tf

left = tf.random.normal((10, 10))
right = tf.random.normal((10, 10))

for _ in range(30_000):
    total = tf.matmul(left, right)
answer = float(tf.reduce_sum(total))
