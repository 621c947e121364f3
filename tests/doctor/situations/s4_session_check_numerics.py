"""A session runs once: the device computes a product, and the host checks for NaN."""

import tensorflow as tf

tf.compat.v1.disable_eager_execution()

with tf.device("/GPU:0"):
    noise = tf.random.normal((1000, 1000))
    product = tf.matmul(noise, noise)
with tf.device("/CPU:0"):
    checked = tf.debugging.check_numerics(product, "the product")

with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(allow_soft_placement=True)) as session:
    try:
        session.run(checked)
    except tf.errors.InvalidArgumentError as error:
        raise SystemExit(str(error)) from error
