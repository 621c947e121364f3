"""The script converts all rows to a tensor once. The compiled step gathers its batch."""

import numpy as np
import tensorflow as tf

rows = tf.constant(np.random.rand(20_000, 256).astype("float32"))
weights = tf.Variable(tf.random.normal((256, 4)))


@tf.function
def train_step():
    chosen = tf.random.uniform((4096,), maxval=len(rows), dtype=tf.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(tf.gather(rows, chosen), weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


for _ in range(60):
    train_step()
