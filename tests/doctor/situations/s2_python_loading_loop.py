"""The loop loads images one by one, converts the batch and then computes. Nothing overlaps."""

import time

import numpy as np
import tensorflow as tf

on_gpu = bool(tf.config.list_physical_devices("GPU"))
side, steps = (128, 200) if on_gpu else (64, 80)
rng = np.random.default_rng(0)
stored = rng.random((32 * steps, side, side, 3), dtype=np.float32)
kinds = rng.integers(0, 10, 32 * steps, dtype=np.int32)
weights = tf.Variable(tf.random.normal((side * side * 3, 10), stddev=0.01))


def load(number):
    decoded_at = time.perf_counter() + 0.001  # seconds; about the time to decode a file
    while time.perf_counter() < decoded_at:
        pass
    return stored[number], kinds[number]


@tf.function
def score(images, labels):
    guesses = tf.reshape(images, (len(images), -1)) @ weights
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, guesses))


for step in range(steps):
    chosen = [load(step * 32 + place) for place in range(32)]
    images = tf.convert_to_tensor(np.array([image for image, _ in chosen]))
    labels = tf.convert_to_tensor(np.array([kind for _, kind in chosen]))
    loss = score(images, labels)
answer = float(loss)
