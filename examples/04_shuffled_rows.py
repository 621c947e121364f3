"""Shuffle many short rows with `from_tensor_slices((data, labels)).shuffle(1024).batch(32)`.

tf.data mixes rows inside a buffer of 1024 rows. The shuffle of Forebay is exact: any row can come at any position.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb

BATCH, FEATURES = 32, 100


def plain(data: Array, labels: Array) -> Variant:
    dataset = tf.data.Dataset.from_tensor_slices((data, labels)).shuffle(1024).batch(BATCH)
    weights = tf.zeros((FEATURES, 1))
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield total_error(dataset, weights)


def forebay(data: Array, labels: Array) -> Variant:
    pipeline = fb.from_arrays((data, labels)).shuffle(seed=0).batch(BATCH)
    weights = tf.zeros((FEATURES, 1))
    # The rows stand for data that does not fit on the device. resident="never" uploads the rows again in every epoch.
    with pipeline.feed("tensorflow", resident="never") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield total_error(feed, weights)


def total_error(batches: Iterable[Any], weights: tf.Tensor) -> float:
    """Return the squared error of a linear model over all batches. With zero weights, the model predicts 0.

    The model is so small that the input takes most of the time.
    """
    error = tf.zeros(())
    for data, labels in batches:
        error += squared_error(data, labels, weights)
    return float(error)


@tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]  # TensorFlow is untyped
def squared_error(data: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum((tf.matmul(data, weights)[:, 0] - tf.cast(labels, tf.float32)) ** 2)


def main() -> None:
    options = read_options()
    rows, rng = options.size(full=100_000, quick=3_200), np.random.default_rng(0)
    data = rng.random((rows, FEATURES), dtype=np.float32)
    labels = rng.integers(0, 2, rows, dtype=np.int32)
    nbytes = BATCH * (data[0].nbytes + labels[0].nbytes)
    compare(options, plain(data, labels), forebay(data, labels), steps=rows // BATCH, nbytes=nbytes)


if __name__ == "__main__":
    main()
