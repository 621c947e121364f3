"""The loop keeps the predictions of every step on the device.

The doctor must report `out_of_memory` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (300, 2048, 4096) if gpu else (20, 16, 16)

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
    return loss, hidden[:512]


predictions, losses = [], []
for step in range(steps):
    loss, predicted = train()
    predictions.append(predicted)
    if step % 10 == 9:
        losses.append(loss.numpy())
