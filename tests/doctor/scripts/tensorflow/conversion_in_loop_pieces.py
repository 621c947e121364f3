"""TensorFlow stacks a list of NumPy arrays in every step, and converts each number separately."""

import numpy as np
import tensorflow as tf

rows = np.random.rand(3200, 512).astype("float32")
weights = tf.Variable(tf.random.normal((512, 512)))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))


for step in range(50):
    batch = tf.stack([rows[row] for row in range(step * 64, (step + 1) * 64)])
    train_step(batch)
