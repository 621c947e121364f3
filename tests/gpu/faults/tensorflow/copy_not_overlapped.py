"""Batches stay in host memory until the compiled step needs them, and the device waits.

The doctor must report `copy_not_overlapped` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width, depth = (250, 2048, 4096, 12) if gpu else (20, 16, 16, 2)

with tf.device("/CPU:0"):
    rows = tf.random.normal((8 * batch_rows, width))
    labels = tf.random.normal((8 * batch_rows, 1))
dataset = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(batch_rows).cache().repeat().take(steps)
dataset = dataset.prefetch(2)
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(depth)]


@tf.function
def train(hidden, target):
    with tf.GradientTape() as tape:
        for layer in layers:
            hidden = tf.nn.relu(hidden @ layer)
        loss = tf.reduce_mean((tf.reduce_mean(hidden, axis=1, keepdims=True) - target) ** 2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses = []
for step, (images, target) in enumerate(dataset):
    loss = train(images, target)
    if step % 10 == 9:
        losses.append(loss.numpy())
