"""The device counts NaN values. The loop reads the count in every tenth step.

The doctor must not report `host_check` here.
"""

import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (500, 2048, 4096) if gpu else (20, 16, 16)

wrong = tf.Variable(0.0)
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
    wrong.assign_add(tf.reduce_sum(tf.cast(tf.math.is_nan(hidden), tf.float32)))


for step in range(steps):
    train()
    if step % 10 == 9 and wrong.numpy():
        raise FloatingPointError(f"step {step}")
