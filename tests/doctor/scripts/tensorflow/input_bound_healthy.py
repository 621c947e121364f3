"""The script decodes all rows at once, before the loop."""

import numpy as np
import tensorflow as tf

stored = np.random.randint(0, 256, (1280, 2048), dtype="uint8")
weights = tf.Variable(tf.random.normal((2048, 1536)))
values = stored.astype("float32")
for _ in range(40):
    values = np.sqrt(values + 1)


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.001 * tape.gradient(loss, weights))


for batch in tf.data.Dataset.from_tensor_slices(values).repeat(4).batch(64).prefetch(tf.data.AUTOTUNE):
    train_step(batch)
