"""TensorFlow: tf.data with a copy to the GPU, and `tf.convert_to_tensor` and `tf.gather` without a loader."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.measure.bench.contenders.gpu import index_batches
from forebay.measure.bench.contenders.tensorflow import SHUFFLE_WINDOW_ROWS
from forebay.measure.bench.data import MIX_WEIGHTS, make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["convert_to_tensor", "resident_rows", "sample_from_datasets", "tensor_slices"]

GPU = "/GPU:0"


def tensor_slices(work: Workload) -> StartEpoch:
    """Shuffle, batch and prefetch slices of an array, as in the guide of tf.data.

    With the option "prefetch_to_device", tf.data copies batches to the GPU in advance.
    """
    with tf.device("/CPU:0"):  # otherwise TensorFlow first copies all rows to the GPU and back
        slices = tf.data.Dataset.from_tensor_slices(make_array(work))
    shuffled = slices.shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
    batches = shuffled.batch(work.batch, drop_remainder=True, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = batches.prefetch(tf.data.AUTOTUNE)
    if work.options.get("prefetch_to_device"):
        on_device = dataset.apply(tf.data.experimental.prefetch_to_device(GPU))
        return lambda: on_device
    return _copy_batches(dataset)


def sample_from_datasets(work: Workload) -> StartEpoch:
    """Mix three shuffled datasets by weight, then batch and prefetch."""
    shares = [weight / sum(MIX_WEIGHTS) for weight in MIX_WEIGHTS]
    with tf.device("/CPU:0"):  # otherwise TensorFlow first copies all rows to the GPU and back
        parts = [
            tf.data.Dataset.from_tensor_slices(rows).shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
            for rows in np.array_split(make_array(work), len(MIX_WEIGHTS))
        ]
    mixed = tf.data.Dataset.sample_from_datasets(parts, shares)
    batches = mixed.batch(work.batch, drop_remainder=True, num_parallel_calls=tf.data.AUTOTUNE)
    return _copy_batches(batches.prefetch(tf.data.AUTOTUNE))


def resident_rows(work: Workload) -> StartEpoch:
    """Keep all rows on the GPU, and permute and select them there."""
    with tf.device(GPU):
        rows = tf.convert_to_tensor(make_array(work))

    def epoch() -> Iterator[Any]:
        with tf.device(GPU):
            order = tf.split(tf.argsort(tf.random.uniform([work.rows])), work.batches)
        for indices in order:
            with tf.device(GPU):
                batch = tf.gather(rows, indices)
            yield batch

    return epoch


def convert_to_tensor(work: Workload) -> StartEpoch:
    """Gather each batch with one NumPy indexing operation; copy it with TensorFlow."""
    rows, generator = make_array(work), np.random.default_rng(0)

    def epoch() -> Iterator[Any]:
        for indices in index_batches(work, generator):
            with tf.device(GPU):
                batch = tf.convert_to_tensor(rows[indices])
            yield batch

    return epoch


def _copy_batches(dataset: Any) -> StartEpoch:
    def epoch() -> Iterator[Any]:
        for batch in dataset:
            with tf.device(GPU):
                copied = tf.identity(batch)
            yield copied

    return epoch
