"""The script fits a linear model to 65,536 points, enough for a GPU.

The doctor must not report `faster_on_cpu` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, points, width = (500, 65_536, 1024) if gpu else (20, 1_000, 8)

x = tf.random.normal((points, width))
y = tf.roll(x, 1, axis=1)
weights = tf.Variable(tf.zeros((width, width)))


@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


losses = []
for step in range(steps):
    loss = train()
    if step % 10 == 9:
        losses.append(loss.numpy())
