"""A tf.data pipeline reads .npz files in Python and splits them into shuffled rows."""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for number in range(8):
    rows, labels = rng.random((4000, 20), dtype=np.float32), rng.integers(0, 2, 4000, dtype=np.int32)
    np.savez(folder / f"part{number}.npz", rows=rows, labels=labels)


def read(path):
    with np.load(path.numpy().decode()) as file:
        return file["rows"], file["labels"]


files = tf.data.Dataset.from_tensor_slices(sorted(map(str, folder.glob("*.npz"))))
parts = files.map(lambda path: tf.py_function(read, [path], [tf.float32, tf.int32]))
batches = parts.unbatch().shuffle(1024).batch(32).prefetch(tf.data.AUTOTUNE)

for features, labels in batches.take(960):
    assert len(features) == len(labels)
