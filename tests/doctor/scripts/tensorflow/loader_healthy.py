"""The compiled step augments whole batches, and tf.data prefetches them."""

import numpy as np
import tensorflow as tf

images = np.random.randint(0, 256, (1280, 64, 64, 3), dtype="uint8")
weights = tf.Variable(tf.random.normal((64 * 64 * 3, 32)))


def augment(batch):
    return tf.image.resize(tf.image.random_crop(batch, (len(batch), 48, 48, 3)), (64, 64), "bicubic")


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(tf.reshape(augment(batch), (len(batch), -1)), weights) ** 2)
    weights.assign_sub(0.001 * tape.gradient(loss, weights))


dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(1280).batch(32).prefetch(tf.data.AUTOTUNE)
for batch in dataset:
    train_step(batch)
