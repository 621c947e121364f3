"""Errors are computed row by row, in a loop of Python's."""

import tensorflow as tf

rows = tf.random.normal((200, 16))
weights = tf.Variable(tf.random.normal((16,), stddev=0.01))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
for _ in range(20):
    errors = tf.stack([tf.reduce_sum(row * weights) for row in tf.unstack(rows)])
    optimizer.apply_gradients([(tf.tensordot(errors, rows, 1), weights)])
