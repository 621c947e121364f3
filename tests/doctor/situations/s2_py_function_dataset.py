"""tf.data prefetches batches, but loads one row at a time with a Python function."""

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
    time.sleep(0.001)  # seconds; about the time to open and decode a file
    return stored[number], kinds[number]


@tf.function
def score(images, labels):
    guesses = tf.reshape(images, (len(images), -1)) @ weights
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, guesses))


numbers = tf.data.Dataset.range(len(stored))
rows = numbers.map(lambda number: tf.py_function(load, [number], [tf.float32, tf.int32]))
for images, labels in rows.batch(32).prefetch(tf.data.AUTOTUNE):
    loss = score(tf.ensure_shape(images, (32, side, side, 3)), tf.ensure_shape(labels, (32,)))
answer = float(loss)
