"""The device keeps only the average of all predictions.

The doctor must not report `out_of_memory` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (300, 2048, 4096) if gpu else (20, 16, 16)

average = tf.Variable(0.0)
batch = tf.random.normal((rows, width))
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(4)]


@tf.function
def train():
    with tf.GradientTape() as tape:
        hidden = batch
        for layer in layers:
            hidden = tf.nn.relu(hidden @ layer)
        loss = tf.reduce_mean((hidden - batch) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    average.assign_add(tf.reduce_mean(hidden) / steps)
    return loss


losses = []
for step in range(steps):
    loss = train()
    if step % 10 == 9:
        losses.append(loss.numpy())
