"""tf.data as its guide teaches it: slices, a shuffle window, batches, prefetch."""

import tensorflow as tf

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

# A window as large as the data would be the same shuffle as everybody's, but fills for seconds first:
# the peer gets the easier work that its users give it.
WINDOW_ROWS = 4096


def epochs(work: Work) -> StartEpoch:
    slices = tf.data.Dataset.from_tensor_slices(array(work)).shuffle(WINDOW_ROWS, reshuffle_each_iteration=True)
    dataset = slices.batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset
