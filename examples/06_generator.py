"""TensorFlow: read rows that a Python generator makes one by one, with `from_generator`."""

import sys
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

ROWS = 640 if "--quick" in sys.argv else 9_600
BATCH, FEATURES = 32, 100


def make_rows() -> Iterator[tuple[np.ndarray, np.int32]]:
    """Yield the rows of one epoch. All epochs have the same rows."""
    rng = np.random.default_rng(0)
    for _ in range(ROWS):
        yield rng.random(FEATURES, dtype=np.float32), np.int32(rng.integers(0, 2))


def plain() -> Variant:
    signature = (tf.TensorSpec((FEATURES,), tf.float32), tf.TensorSpec((), tf.int32))
    dataset = tf.data.Dataset.from_generator(make_rows, output_signature=signature)
    batches = dataset.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows(batches)


def forebay() -> Variant:
    with fb.from_generator(make_rows).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows(feed)


def sum_of_rows(batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> float:
    total = tf.zeros(())
    for data, _ in batches:
        total += tf.reduce_sum(data)
    return float(total)


def main() -> None:
    compare(  # times the rounds of both variants, and checks that their answers are equal
        plain(),
        forebay(),
        steps=ROWS // BATCH,
        nbytes=BATCH * (FEATURES + 1) * 4,
        look_at="both times per step. plain makes tensors of every single row. forebay writes the rows of a batch into "
        "one array, and hands it off as one tensor. The same generator limits both.",
    )


if __name__ == "__main__":
    main()
