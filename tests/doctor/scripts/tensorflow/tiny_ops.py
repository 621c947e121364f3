"""A Python loop sums a gradient row by row."""

import tensorflow as tf

rows = tf.random.normal((200, 16))
weights = tf.Variable(tf.random.normal((16,), stddev=0.01))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
for _ in range(20):
    gradient = sum(row * weights for row in tf.unstack(rows))
    optimizer.apply_gradients([(gradient, weights)])
