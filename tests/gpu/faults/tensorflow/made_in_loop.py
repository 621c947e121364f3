"""NumPy makes each batch between two steps, while the device is idle.

The doctor must report `made_in_loop` here.
"""

import numpy as np
import tensorflow as tf

steps, rows, width = 200, 256, 512

generator = np.random.default_rng(0)
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(4)]


def draw():
    return generator.normal(size=(4, rows, width)).mean(axis=0).astype("float32")


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        hidden = batch
        for layer in layers:
            hidden = tf.nn.relu(hidden @ layer)
        loss = tf.reduce_mean((hidden - batch) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses = []
for step in range(steps):
    signals = draw()
    loss = train(tf.constant(signals))
    if step % 10 == 9:
        losses.append(loss.numpy())
