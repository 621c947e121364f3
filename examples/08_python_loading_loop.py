"""TensorFlow: load rows one by one in Python, stack them, convert them, then compute. These actions do not overlap."""

import sys
import time

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

ROWS, SIDE = (64, 32) if "--quick" in sys.argv else (1_024, 256)
BATCH, LOAD_SECONDS = 32, 0.001  # seconds per row
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.random((ROWS, SIDE, SIDE, 3), dtype=np.float32), RNG.integers(0, 10, ROWS, dtype=np.int32)


class Rows:
    """Rows that take long to load, like files that a program opens, decodes and resizes."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.int32]:
        time.sleep(LOAD_SECONDS)
        return IMAGES[row], LABELS[row]


def plain(rows: Rows) -> Variant:
    with tf.device(DEVICE):
        while True:  # one round per iteration
            total = tf.zeros(())
            for start in range(0, ROWS, BATCH):
                images, labels = zip(*(rows[row] for row in range(start, start + BATCH)), strict=True)
                total += compute(tf.convert_to_tensor(np.array(images)), tf.convert_to_tensor(np.array(labels)))
            yield total


def forebay(rows: Rows) -> Variant:
    with fb.from_source(rows).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum(compute(images, labels) for images, labels in feed)


def compute(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(images) * tf.reduce_mean(tf.cast(labels, tf.float32))


def main() -> None:
    advice = (
        f"both times per step. plain loads the {BATCH} rows of a batch one by one, each in {LOAD_SECONDS} s, and "
        "then computes. forebay loads rows in several threads, also while the loop computes."
    )
    # compare() times the rounds of both variants, and checks that their answers are equal.
    compare(plain(Rows()), forebay(Rows()), steps=ROWS // BATCH, nbytes=IMAGES[:BATCH].nbytes, look_at=advice)


if __name__ == "__main__":
    main()
