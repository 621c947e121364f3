"""Load rows one by one in Python, stack them, convert them, then compute. None of this overlaps."""

import time

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Options, Variant, compare, read_options

import forebay as fb

BATCH = 32  # rows
LOAD_SECONDS = 0.001  # per row


class Images:
    """Images that take long to load, like files that a program opens, decodes and resizes."""

    def __init__(self, images: Array, labels: Array) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[Array, np.int32]:
        time.sleep(LOAD_SECONDS)
        return self._images[row], self._labels[row]


def plain(rows: Images) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            total = tf.zeros(())
            for start in range(0, len(rows), BATCH):
                loaded = [rows[row] for row in range(start, min(start + BATCH, len(rows)))]
                images = tf.convert_to_tensor(np.array([image for image, _ in loaded]))
                labels = tf.convert_to_tensor(np.array([label for _, label in loaded]))
                total += step(images, labels)
            yield total


def forebay(rows: Images) -> Variant:
    with fb.from_source(rows).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
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
    rows = make_data(options)
    image, _ = rows[0]
    compare(options, plain(rows), forebay(rows), steps=len(rows) // BATCH, nbytes=BATCH * image.nbytes)


if __name__ == "__main__":
    main()
