"""The step runs one operation on another device than the rest."""

import keras
import tensorflow as tf

host = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)

x = tf.random.normal((2000, 8))
weights = tf.Variable(tf.random.normal((8, 2000)))
optimizer = keras.optimizers.SGD(0.01)
for _ in range(30):
    with tf.GradientTape() as tape:
        scores = tf.matmul(x, weights)
        with tf.device("/CPU:1"):
            clipped = tf.clip_by_value(scores, 0, 6)
        loss = tf.reduce_mean(clipped)
    optimizer.apply([tape.gradient(loss, weights)], [weights])
