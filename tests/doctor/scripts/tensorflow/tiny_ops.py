"""A gradient is added up row by row, in a loop of Python's."""

import tensorflow as tf

rows = tf.random.normal((200, 16))
weights = tf.Variable(tf.random.normal((16,), stddev=0.01))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
for _ in range(20):
    gradient = sum(row * weights for row in tf.unstack(rows))
    optimizer.apply_gradients([(gradient, weights)])
