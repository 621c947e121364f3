"""Inside a compiled function, the device computes a product and the host checks for NaN."""

import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
side = 6000 if on_gpu else 1000
device = tf.config.list_logical_devices()[-1].name


@tf.function
def multiply(noise):
    with tf.device(device):
        product = tf.matmul(noise, noise, transpose_b=True)
    with tf.device("/CPU:0"):
        checked = tf.debugging.check_numerics(product, "the product")
    with tf.device(device):
        return tf.reduce_mean(checked)


with tf.device(device):
    noise = tf.random.normal((side, 16))
for _ in range(100):
    mean = multiply(noise)
answer = float(mean)
