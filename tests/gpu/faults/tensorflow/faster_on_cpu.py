"""The script fits a linear model to 100 points, too few for a GPU.

The doctor must report `faster_on_cpu` here.
"""

import tensorflow as tf

x = tf.random.normal((100, 8))
y = tf.reduce_sum(x, axis=1, keepdims=True)
weights = tf.Variable(tf.zeros((8, 1)))


@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


losses = []
for step in range(5000):
    loss = train()
    if step % 100 == 99:
        losses.append(loss.numpy())
