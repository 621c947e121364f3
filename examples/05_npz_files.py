"""Read rows from many .npz files with `tf.py_function`, and shuffle them in a buffer."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Array, Variant, compare, read_options

import forebay as fb

BATCH, FEATURES = 32, 100


def plain(folder: Path) -> Variant:
    dataset = (
        tf.data.Dataset.from_tensor_slices([str(path) for path in sorted(folder.glob("*.npz"))])
        .map(load_file)
        .unbatch()
        .shuffle(1024)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows((data for data, _ in dataset))


def forebay(folder: Path) -> Variant:
    with fb.from_files(folder / "*.npz").shuffle(seed=0).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield sum_of_rows(batch["data"] for batch in feed)


def load_file(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    data, labels = tf.py_function(read_file, [path], [tf.float32, tf.int32])
    data.set_shape((None, FEATURES))
    labels.set_shape((None,))
    return data, labels


def read_file(path: Any) -> tuple[Array, Array]:
    with np.load(path.numpy().decode()) as members:
        return members["data"], members["labels"]


def sum_of_rows(batches: Iterable[Any]) -> float:
    total = tf.zeros(())
    for data in batches:
        total += tf.reduce_sum(data)
    return float(total)


def write_files(folder: Path, files: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(files):
        data = rng.random((rows, FEATURES), dtype=np.float32)
        np.savez(folder / f"part{number:02}.npz", data=data, labels=rng.integers(0, 2, rows, dtype=np.int32))


def main() -> None:
    options = read_options()
    files, rows = options.size(full=10, quick=3), options.size(full=6_400, quick=320)
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), files, rows)
        steps, nbytes = files * rows // BATCH, BATCH * (FEATURES + 1) * 4
        compare(options, plain(Path(name)), forebay(Path(name)), steps=steps, nbytes=nbytes)


if __name__ == "__main__":
    main()
