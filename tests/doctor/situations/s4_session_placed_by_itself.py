"""A session runs once and leaves the placement to TensorFlow."""

import tensorflow as tf

tf.compat.v1.disable_eager_execution()

left, right = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])
total = left + right

with tf.compat.v1.Session() as session:
    answer = session.run(total)
