"""Batches are in pageable memory, and the first operation of each step uploads its batch.

The doctor must report `pageable_upload` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, batch_rows, width, depth = (250, 2048, 4096, 12) if gpu else (20, 16, 16, 2)

with tf.device("/CPU:0"):
    readings = tf.random.uniform((8 * batch_rows, width), maxval=255.0)
dataset = tf.data.Dataset.from_tensor_slices(readings).batch(batch_rows).cache().repeat().take(steps)
dataset = dataset.prefetch(2)
layers = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(depth)]


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
for step, batch in enumerate(dataset):
    scaled = batch / 255.0
    loss = train(scaled)
    if step % 10 == 9:
        losses.append(loss.numpy())
