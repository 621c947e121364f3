"""TensorFlow: shuffle many short rows with `from_tensor_slices((data, labels)).shuffle(1024).batch(32)`.

tf.data mixes rows inside a buffer of 1024 rows. The shuffle of Forebay is exact: any row can come at any position.
"""

import sys
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

ROWS = 3_200 if "--quick" in sys.argv else 100_000
BATCH, FEATURES = 32, 100


def plain(data: np.ndarray, labels: np.ndarray) -> Variant:
    dataset = tf.data.Dataset.from_tensor_slices((data, labels)).shuffle(1024).batch(BATCH)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield total_error(dataset)


def forebay(data: np.ndarray, labels: np.ndarray) -> Variant:
    pipeline = fb.from_arrays((data, labels)).shuffle(seed=0).batch(BATCH)
    # The rows stand for data that does not fit on the device. resident="never" uploads the rows again in every epoch.
    with pipeline.feed("tensorflow", resident="never") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield total_error(feed)


def total_error(batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> float:
    """Return the squared error of a linear model. The model is so small that the input takes most of the time."""
    error, weights = tf.zeros(()), tf.zeros((FEATURES, 1))
    for data, labels in batches:
        error += squared_error(data, labels, weights)
    return float(error)


@tf.function(reduce_retracing=True)
def squared_error(data: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum((tf.matmul(data, weights)[:, 0] - tf.cast(labels, tf.float32)) ** 2)


def main() -> None:
    rng = np.random.default_rng(0)
    data, labels = rng.random((ROWS, FEATURES), dtype=np.float32), rng.integers(0, 2, ROWS, dtype=np.int32)
    advice = "both times per step. plain makes one call for each row. forebay gathers the rows of whole batches."
    nbytes = data[:BATCH].nbytes + labels[:BATCH].nbytes
    # compare() times the rounds of both variants, and checks that their answers are equal.
    compare(plain(data, labels), forebay(data, labels), steps=ROWS // BATCH, nbytes=nbytes, look_at=advice)


if __name__ == "__main__":
    main()
