"""The loop converts NumPy's float64 data to float64 tensors, then casts them to float32."""

import numpy as np
import tensorflow as tf

signal = np.random.rand(600, 4096)
weights = tf.Variable(tf.random.normal((4096, 4)))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(batch, weights) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))


for step in range(50):
    batch = tf.constant(signal[step * 7 :][:250])
    train_step(tf.cast(batch, tf.float32))
