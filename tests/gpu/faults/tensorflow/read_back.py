"""The loop waits for every loss before NumPy estimates the spread of the losses.

The doctor must report `read_back` here.
"""

import numpy as np
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (500, 4096, 4096) if gpu else (20, 16, 16)

generator = np.random.default_rng(0)
batch = tf.random.normal((rows, width))
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(2)]


@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(batch @ layers[0]) @ layers[1] - batch) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses, spreads = [], []
for _ in range(steps):
    loss = train()
    losses.append(loss.numpy())
    # Host work that can overlap with the device: a bootstrap of the mean of the losses.
    drawn = generator.choice(losses[-100:], (1000, 100))
    spreads.append(np.percentile(drawn.mean(axis=1), [5, 95]))
