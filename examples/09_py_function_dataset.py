"""Load slow rows with `map(tf.py_function)`, batched and prefetched by tf.data."""

import time

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Options, Variant, compare, read_options

import forebay as fb

BATCH = 32  # rows
LOAD_SECONDS = 0.001  # per row


class Images:
    """Loads the image and the label of a row number. This takes long, like reading a file."""

    def __init__(self, images: Array, labels: Array) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._images)

    def __call__(self, row: int | tf.Tensor) -> tuple[Array, np.int32]:
        time.sleep(LOAD_SECONDS)
        return self._images[row], self._labels[row]


def plain(load: Images) -> Variant:
    dataset = (
        tf.data.Dataset.from_tensor_slices(np.arange(len(load)))
        .map(lambda row: tuple(tf.py_function(load, [row], [tf.float32, tf.int32])))
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )
    with tf.device(DEVICE):
        while True:  # one round per iteration
            total = tf.zeros(())
            for images, labels in dataset:
                total += step(images, labels)
            yield total


def forebay(load: Images) -> Variant:
    pipeline = fb.from_arrays(np.arange(len(load))).map(load, where="thread").batch(BATCH)
    with pipeline.feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            total = tf.zeros(())
            for images, labels in feed:
                total += step(images, labels)
            yield total


def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(images) * tf.reduce_mean(tf.cast(labels, tf.float32))


def make_data(options: Options) -> Images:
    rows, side, rng = options.size(full=1_024, quick=64), options.size(full=256, quick=32), np.random.default_rng(0)
    return Images(rng.random((rows, side, side, 3), dtype=np.float32), rng.integers(0, 10, rows, dtype=np.int32))


def main() -> None:
    options = read_options()
    load = make_data(options)
    image, _ = load(0)
    compare(options, plain(load), forebay(load), steps=len(load) // BATCH, nbytes=BATCH * image.nbytes)


if __name__ == "__main__":
    main()
