"""The loop reads all activations back in every step, and NumPy checks them for NaN.

The doctor must report `host_check` here.
"""

import numpy as np
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (250, 2048, 4096) if gpu else (20, 16, 16)

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
    return hidden


for step in range(steps):
    activations = train()
    if np.isnan(activations.numpy()).any():
        raise FloatingPointError(f"step {step}")
