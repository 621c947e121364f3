"""One compiled program processes the whole sequence, and large batches keep the device busy.

The doctor must not report `launch_bound` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, moments, batch_rows, width = (250, 16, 4096, 2048) if gpu else (8, 4, 16, 16)

sequence = tf.random.normal((moments, batch_rows, width))
inward, onward = (tf.Variable(tf.random.normal((width, width), stddev=width**-0.5)) for _ in range(2))


@tf.function(jit_compile=True)
def train():
    with tf.GradientTape() as tape:
        state = tf.zeros((batch_rows, width))
        for moment in tf.unstack(sequence):
            state = tf.tanh(moment @ inward + state @ onward)
        loss = tf.reduce_mean(state**2)
    for layer, gradient in zip([inward, onward], tape.gradient(loss, [inward, onward]), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


losses = []
for step in range(steps):
    loss = train()
    if step % 10 == 9:
        losses.append(loss.numpy())
