"""A Python generator makes one row at a time, and tf.data assembles batches."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)


def patients():
    for _ in range(10_000):
        yield rng.random(100, dtype=np.float32), rng.integers(0, 2, dtype=np.int32)


signature = tf.TensorSpec((100,), tf.float32), tf.TensorSpec((), tf.int32)
rows = tf.data.Dataset.from_generator(patients, output_signature=signature)
for features, labels in rows.batch(32).prefetch(tf.data.AUTOTUNE).take(200):
    assert len(features) == len(labels)
