"""One session runs repeatedly: a device computes a product, and the host checks for NaN."""

import tensorflow as tf

tf.compat.v1.disable_eager_execution()

on_gpu = bool(tf.config.list_physical_devices("GPU"))
device, side = ("/GPU:0", 6000) if on_gpu else ("/CPU:1", 2000)
with tf.device(device):
    noise = tf.random.normal((side, 16))
    product = tf.matmul(noise, noise, transpose_b=True)
with tf.device("/CPU:0"):
    checked = tf.debugging.check_numerics(product, "the product")

with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})) as session:
    for _ in range(100):
        session.run(checked.op)
