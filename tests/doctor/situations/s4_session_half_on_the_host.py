"""A session runs once: the device adds, and the host computes square roots."""

import tensorflow as tf

tf.compat.v1.disable_eager_execution()

with tf.device("/GPU:0"):
    left, right = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])
    total = left + right
with tf.device("/CPU:0"):
    root = tf.sqrt(total)

with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(allow_soft_placement=True)) as session:
    answer = session.run(root)
