"""A compiled function uses a large NumPy table, which becomes a constant of the graph."""

import numpy as np
import tensorflow as tf

table = np.random.default_rng(0).random((36_000, 500), dtype="float32")


@tf.function
def look_up(rows):
    return tf.reduce_sum(tf.gather(table, rows), axis=1)


for _ in range(30):
    look_up(tf.random.uniform((64,), maxval=36_000, dtype=tf.int32))
