"""TensorFlow: load slow rows with `map(tf.py_function)`, batched and prefetched by tf.data."""

import sys
import time
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

ROWS, SIDE = (64, 32) if "--quick" in sys.argv else (1_024, 256)
BATCH, LOAD_SECONDS = 32, 0.001  # seconds per row
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.random((ROWS, SIDE, SIDE, 3), dtype=np.float32), RNG.integers(0, 10, ROWS, dtype=np.int32)


def load(row: int | tf.Tensor) -> tuple[np.ndarray, np.int32]:
    """Return the image and the label of a row. This takes long, like reading a file."""
    time.sleep(LOAD_SECONDS)
    return IMAGES[row], LABELS[row]


def plain() -> Variant:
    numbers = tf.data.Dataset.from_tensor_slices(np.arange(ROWS))
    loaded = numbers.map(lambda row: tuple(tf.py_function(load, [row], [tf.float32, tf.int32])))
    dataset = loaded.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield compute(dataset)


def forebay() -> Variant:
    pipeline = fb.from_arrays(np.arange(ROWS)).map(load, where="thread").batch(BATCH)
    with pipeline.feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield compute(feed)


def compute(batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> tf.Tensor:
    total = tf.zeros(())
    for images, labels in batches:
        total += tf.reduce_mean(images) * tf.reduce_mean(tf.cast(labels, tf.float32))
    return total


def main() -> None:
    advice = (
        "both times per step. plain calls the function through tf.py_function, which converts every row to tensors. "
        "forebay calls it directly, and hands off whole batches."
    )
    # compare() times the rounds of both variants, and checks that their answers are equal.
    compare(plain(), forebay(), steps=ROWS // BATCH, nbytes=IMAGES[:BATCH].nbytes, look_at=advice)


if __name__ == "__main__":
    main()
