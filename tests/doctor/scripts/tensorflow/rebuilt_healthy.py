"""The script builds one pipeline that repeats the rows without end."""

import numpy as np
import tensorflow as tf

x = np.random.rand(2000, 500).astype("float32")
weights = tf.Variable(tf.random.normal((500, 4000)))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))


dataset = tf.data.Dataset.from_tensor_slices(x).repeat().shuffle(1000).batch(64).prefetch(2)
for batch in dataset.take(30):
    train_step(batch)
