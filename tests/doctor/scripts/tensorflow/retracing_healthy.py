"""The learning rate is a tensor, so TensorFlow traces one graph for all values."""

import tensorflow as tf

x = tf.random.normal((128, 64))
weights = tf.Variable(tf.random.normal((64, 1)))


@tf.function
def train_step(rate):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, weights) ** 2)
    weights.assign_sub(rate * tape.gradient(loss, weights))
    return loss


for step in range(30):
    train_step(tf.constant(0.1 / (step + 1)))
