"""A Python function decodes the rows one after the other."""

import numpy as np
import tensorflow as tf

stored = np.random.randint(0, 256, (1280, 2048), dtype="uint8")
weights = tf.Variable(tf.random.normal((2048, 1536)))


def decode(row):
    values = row.astype("float32")
    for _ in range(150):
        values = np.sqrt(values + 1)
    return values


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.001 * tape.gradient(loss, weights))


dataset = tf.data.Dataset.from_tensor_slices(stored)
dataset = dataset.map(lambda row: tf.ensure_shape(tf.numpy_function(decode, [row], tf.float32), (2048,)))
for batch in dataset.batch(64).prefetch(1):
    train_step(batch)
