"""Sentences have different lengths, and TensorFlow traces a graph for each length."""

import tensorflow as tf

table = tf.random.normal((1000, 32))


@tf.function
def encode(words):
    return tf.reduce_mean(tf.gather(table, words), axis=0)


for length in range(1, 31):
    encode(tf.random.uniform((length,), maxval=1000, dtype=tf.int32))
