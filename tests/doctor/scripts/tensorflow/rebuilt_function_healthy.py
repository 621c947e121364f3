"""The script creates the `tf.function` once, before the loop."""

import tensorflow as tf

x = tf.random.normal((128, 64))
weights = tf.Variable(tf.random.normal((64, 1)))


def train_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))


compiled = tf.function(train_step)
for _ in range(30):
    compiled()
