"""Every epoch uploads all images again, although they fit on the device.

The doctor must report `fits_on_device` here.
"""

import numpy as np
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
epochs, rows, width = (20, 2048, 4096) if gpu else (2, 16, 16)

images = np.random.default_rng(0).random((15, rows, width), dtype="float32")
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(4)]


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        hidden = batch
        for layer in layers:
            hidden = tf.nn.relu(hidden @ layer)
        loss = tf.reduce_mean((hidden - 1) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses = []
for _ in range(epochs):
    for rows_of_batch in images:
        batch = tf.constant(rows_of_batch)
        loss = train(batch)
    losses.append(float(loss))
