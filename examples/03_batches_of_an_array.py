"""Read large images in order with `from_tensor_slices(...).batch(...).prefetch(...)`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb

BATCH = 32


def plain(images: Array) -> Variant:
    dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield mean_of_means(dataset)


def forebay(images: Array) -> Variant:
    # The array stands for one that does not fit on the device. resident="never" uploads the array again in every epoch.
    with fb.from_arrays(images).batch(BATCH).feed("tensorflow", resident="never") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield mean_of_means(feed)


def mean_of_means(batches: Iterable[Any]) -> float:
    means = [tf.reduce_mean(batch) for batch in batches]
    return float(tf.reduce_mean(means))


def main() -> None:
    options = read_options()
    rows, side = options.size(full=2048, quick=128), options.size(full=256, quick=64)
    images = np.resize(np.random.default_rng(0).random((64, side, side, 3), dtype=np.float32), (rows, side, side, 3))
    steps = rows // BATCH
    compare(options, plain(images), forebay(images), steps=steps, nbytes=images.nbytes // steps)


if __name__ == "__main__":
    main()
