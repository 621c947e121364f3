"""Python runs the training step operation by operation.

The doctor must report `eager` here.
"""

import keras
import tensorflow as tf

gpu = bool(tf.config.list_physical_devices("GPU"))
steps, rows, width = (80, 1024, 1024) if gpu else (10, 32, 32)

batch = tf.random.normal((rows, width))
model = keras.Sequential([keras.Input((width,)), *[keras.layers.Dense(width, "relu") for _ in range(4)]])
optimizer = keras.optimizers.Adam(1e-4)
optimizer.build(model.trainable_variables)


def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch) - batch) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


losses = []
for step in range(steps):
    loss = train()
    if step % 10 == 9:
        losses.append(loss.numpy())
