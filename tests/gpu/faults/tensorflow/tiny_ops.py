"""A Python loop multiplies and sums the rows one by one.

The doctor must report `tiny_ops` here.
"""

import tensorflow as tf

rows = tf.random.normal((200, 131_072))
weights = tf.Variable(tf.random.normal((131_072,)))


@tf.function
def update(gradient):
    weights.assign_sub(1e-3 * gradient)


for _ in range(200):
    gradient = sum(row * weights for row in tf.unstack(rows))
    update(gradient)
