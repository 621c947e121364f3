"""tf.data shuffles and batches the rows of an array without prefetch."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
measured = rng.random((100_000, 100), dtype=np.float32)
sick = rng.integers(0, 2, 100_000, dtype=np.int32)
weights = tf.Variable(tf.zeros((100, 2)))


@tf.function
def learn(features, labels):
    with tf.GradientTape() as tape:
        wrong = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, features @ weights)
    weights.assign_sub(0.01 * tape.gradient(wrong, weights))


patients = tf.data.Dataset.from_tensor_slices((measured, sick)).shuffle(1024).batch(32)
for features, labels in patients.take(400):
    learn(features, labels)
