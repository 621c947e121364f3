"""tf.data's `from_generator`: what a TensorFlow user does with rows from Python."""

import tensorflow as tf

from forebay.measure.bench.data import generator_rows
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    signature = tf.TensorSpec(work.shape, work.dtype)
    rows = tf.data.Dataset.from_generator(lambda: generator_rows(work), output_signature=signature)
    dataset = rows.batch(work.batch).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset
