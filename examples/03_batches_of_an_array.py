"""TensorFlow: read large images in order with `from_tensor_slices(...).batch(...).prefetch(...)`."""

import sys
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

ROWS, SIDE = (128, 64) if "--quick" in sys.argv else (2048, 256)
BATCH = 32


def plain(images: np.ndarray) -> Variant:
    dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield mean_of_means(dataset)


def forebay(images: np.ndarray) -> Variant:
    # The array stands for one that does not fit on the device. resident="never" uploads the array again in every epoch.
    with fb.from_arrays(images).batch(BATCH).feed("tensorflow", resident="never") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield mean_of_means(feed)


def mean_of_means(batches: Iterable[tf.Tensor]) -> float:
    means = [tf.reduce_mean(batch) for batch in batches]
    return float(tf.reduce_mean(means))


def main() -> None:
    images = np.resize(np.random.default_rng(0).random((64, SIDE, SIDE, 3), dtype=np.float32), (ROWS, SIDE, SIDE, 3))
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(images),
        forebay(images),
        steps=ROWS // BATCH,
        nbytes=images[:BATCH].nbytes,
        look_at="both times per step. plain prefetches batches into host memory, so each step includes the copy of a "
        "batch to the GPU. forebay copies the next batches while the GPU computes.",
    )


if __name__ == "__main__":
    main()
