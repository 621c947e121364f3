"""tf.data as its guide teaches it: slices, a shuffle window, batches, prefetch; its own way to the device on demand."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from forebay.measure.bench.contenders.tf_slices import WINDOW_ROWS
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

GPU = "/GPU:0"


def epochs(work: Work) -> StartEpoch:
    with tf.device("/CPU:0"):  # or all of the rows go to the GPU and back first
        slices = tf.data.Dataset.from_tensor_slices(array(work))
    shuffled = slices.shuffle(WINDOW_ROWS, reshuffle_each_iteration=True)
    batches = shuffled.batch(work.batch, drop_remainder=True, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = batches.prefetch(tf.data.AUTOTUNE)
    if work.options.get("prefetch_to_device"):
        on_device = dataset.apply(tf.data.experimental.prefetch_to_device(GPU))
        return lambda: on_device

    def epoch() -> Iterator[Any]:
        for batch in dataset:
            with tf.device(GPU):
                copied = tf.identity(batch)
            yield copied

    return epoch
