"""Read rows that a Python generator makes one by one, with `from_generator`."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb

BATCH, FEATURES = 32, 100


class Rows:
    """A call yields the rows of one epoch. All epochs have the same rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __call__(self) -> Iterator[tuple[Array, np.int32]]:
        rng = np.random.default_rng(0)
        for _ in range(self._rows):
            yield rng.random(FEATURES, dtype=np.float32), np.int32(rng.integers(0, 2))


def plain(make_rows: Rows) -> Variant:
    signature = (tf.TensorSpec((FEATURES,), tf.float32), tf.TensorSpec((), tf.int32))
    dataset = (
        tf.data.Dataset.from_generator(make_rows, output_signature=signature).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    )
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows(dataset)


def forebay(make_rows: Rows) -> Variant:
    with fb.from_generator(make_rows).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows(feed)


def sum_of_rows(batches: Iterable[Any]) -> float:
    total = tf.zeros(())
    for data, _ in batches:
        total += tf.reduce_sum(data)
    return float(total)


def main() -> None:
    options = read_options()
    rows = options.size(full=9_600, quick=640)
    nbytes = BATCH * (FEATURES + 1) * 4
    compare(options, plain(Rows(rows)), forebay(Rows(rows)), steps=rows // BATCH, nbytes=nbytes)


if __name__ == "__main__":
    main()
