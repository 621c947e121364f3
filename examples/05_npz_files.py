"""TensorFlow: read rows from many .npz files with `tf.py_function`, and shuffle them in a buffer."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from side_by_side import DEVICE, Variant, compare

import forebay as fb

FILES, ROWS = (3, 320) if "--quick" in sys.argv else (10, 6_400)  # rows of each file
BATCH, FEATURES = 32, 100


def plain(folder: Path) -> Variant:
    files = tf.data.Dataset.from_tensor_slices([str(path) for path in sorted(folder.glob("*.npz"))])
    dataset = files.map(load_file).unbatch().shuffle(1024).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    with tf.device(DEVICE):
        while True:  # one round per iteration
            yield float(sum(tf.reduce_sum(data) for data, _ in dataset))


def load_file(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    data, labels = tf.py_function(read_file, [path], [tf.float32, tf.int32])
    return tf.ensure_shape(data, (None, FEATURES)), tf.ensure_shape(labels, (None,))


def read_file(path: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path.numpy().decode()) as members:
        return members["data"], members["labels"]


def forebay(folder: Path) -> Variant:
    with fb.from_files(folder / "*.npz").shuffle(seed=0).batch(BATCH).feed("tensorflow") as feed, tf.device(DEVICE):
        while True:  # one round per iteration
            yield float(sum(tf.reduce_sum(batch["data"]) for batch in feed))


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        for number in range(FILES):
            data = rng.random((ROWS, FEATURES), dtype=np.float32)
            np.savez(Path(name, f"part{number:02}.npz"), data=data, labels=rng.integers(0, 2, ROWS, dtype=np.int32))
        advice = (
            "both times per step. plain reads whole files in Python, and splits them into single rows for the shuffle. "
            "forebay maps the files into memory, and gathers the rows of whole batches."
        )
        steps, nbytes = FILES * ROWS // BATCH, BATCH * (FEATURES + 1) * 4
        # compare() times the rounds of both variants, and checks that their answers are equal.
        compare(plain(Path(name)), forebay(Path(name)), steps=steps, nbytes=nbytes, look_at=advice)


if __name__ == "__main__":
    main()
