"""NumPy creates float64 data, so TensorFlow computes everything in float64.

The doctor must report `tensor_cores` here.
"""

import numpy as np
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (300, 4096, 3072) if gpu else (20, 32, 32)

generator = np.random.default_rng(0)
batch = tf.constant(generator.normal(size=(rows, width)))
layers = [tf.Variable(generator.normal(0, width**-0.5, (width, width))) for _ in range(2)]


@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(batch @ layers[0]) @ layers[1] - batch) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses = []
for step in range(steps):
    loss = train()
    if step % 10 == 9:
        losses.append(loss.numpy())
