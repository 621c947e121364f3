"""One session runs repeatedly: a device adds two tables, and the host computes square roots."""

import tensorflow as tf

tf.compat.v1.disable_eager_execution()

on_gpu = bool(tf.config.list_physical_devices("GPU"))
device, rows = ("/GPU:0", 16_000) if on_gpu else ("/CPU:1", 2000)
with tf.device(device):
    left = tf.compat.v1.get_variable("left", initializer=tf.random.uniform((rows, 500)))
    total = left + tf.compat.v1.get_variable("right", initializer=tf.random.uniform((rows, 500)))
with tf.device("/CPU:0"):
    root = tf.sqrt(total)
    answer = tf.reduce_mean(root)

with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(100):
        session.run(answer)
