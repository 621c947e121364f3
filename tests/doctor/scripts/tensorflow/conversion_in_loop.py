"""NumPy gathers every batch, and TensorFlow converts it when the loop calls the compiled step."""

import numpy as np
import tensorflow as tf

rows = np.random.rand(20_000, 256).astype("float32")
weights = tf.Variable(tf.random.normal((256, 4)))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


order = np.random.default_rng(0)
for _ in range(60):
    chosen = order.integers(len(rows), size=4096)
    train_step(rows[chosen])
