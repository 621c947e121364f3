"""One compiled call multiplies and sums all rows.

The doctor must not report `tiny_ops` here.
"""

import tensorflow as tf

rows = tf.random.normal((200, 131_072))
weights = tf.Variable(tf.random.normal((131_072,)))


@tf.function
def update():
    weights.assign_sub(1e-3 * tf.reduce_sum(rows * weights, axis=0))


for _ in range(5000):
    update()
