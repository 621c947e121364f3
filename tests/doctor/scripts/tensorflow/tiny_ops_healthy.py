"""One operation sums the gradient of all rows."""

import tensorflow as tf

rows = tf.random.normal((200, 16))
weights = tf.Variable(tf.random.normal((16,), stddev=0.01))
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
for _ in range(20):
    gradient = tf.reduce_sum(rows * weights, axis=0)
    optimizer.apply_gradients([(gradient, weights)])
