"""A Forebay feed uploads each batch during the previous step, unlike `prefetch_to_device`.

The doctor must not report `copy_not_overlapped` here.
"""

import numpy as np
import tensorflow as tf

import forebay as fb

gpu = bool(tf.config.list_physical_devices("GPU"))
rounds, batch_rows, width, depth = (32, 2048, 4096, 12) if gpu else (3, 16, 16, 2)

rng = np.random.default_rng(0)
rows = rng.standard_normal((8 * batch_rows, width), dtype=np.float32)
labels = rng.standard_normal((8 * batch_rows, 1), dtype=np.float32)
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
pipeline = fb.from_arrays((rows, labels)).batch(batch_rows).repeat(rounds)
with pipeline.feed("tensorflow", resident="never") as feed:
    for step, (images, target) in enumerate(feed):
        loss = train(images, target)
        if step % 10 == 9:
            losses.append(loss.numpy())
