"""Errors of all rows at once."""

import tensorflow as tf

rows = tf.random.normal((200, 16))
weights = tf.Variable(tf.random.normal((16,), stddev=0.01))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
for _ in range(20):
    errors = tf.reduce_sum(rows * weights, axis=1)
    optimizer.apply_gradients([(tf.tensordot(errors, rows, 1), weights)])
