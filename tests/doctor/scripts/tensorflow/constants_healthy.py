"""The table is a tensor, and the compiled function receives it as an argument."""

import numpy as np
import tensorflow as tf

table = tf.constant(np.random.default_rng(0).random((50_000, 500), dtype="float32"))


@tf.function
def look_up(table, rows):
    return tf.reduce_sum(tf.gather(table, rows), axis=1)


for _ in range(30):
    look_up(table, tf.random.uniform((64,), maxval=50_000, dtype=tf.int32))
