"""DataFrames and sparse matrices: loops of PyTorch and SciPy, and tf.data."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.measure.bench.data import make_csr, make_frame
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["dense_slices", "frame_slices", "frame_tensor"]


def frame_tensor(work: Workload) -> StartEpoch:
    """Convert the frame to one tensor, and index it for each batch."""
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(make_frame(work)))

    def epoch() -> Iterator[Any]:
        for indices in torch.randperm(work.rows).split(work.batch):
            yield rows[indices]

    return epoch


def frame_slices(work: Workload) -> StartEpoch:
    """Shuffle, batch and prefetch slices of all columns, as in the tutorial of tf.data for DataFrames."""
    import tensorflow as tf

    from forebay.measure.bench.contenders.tensorflow import SHUFFLE_WINDOW_ROWS

    slices = tf.data.Dataset.from_tensor_slices(dict(make_frame(work)))
    shuffled = slices.shuffle(SHUFFLE_WINDOW_ROWS, reshuffle_each_iteration=True)
    dataset = shuffled.batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def dense_slices(work: Workload) -> StartEpoch:
    """Select the rows of each batch with SciPy, and make them dense with `toarray`."""
    matrix, generator = make_csr(work), np.random.default_rng(0)

    def epoch() -> Iterator[Any]:
        order = generator.permutation(work.rows)
        for start in range(0, work.rows, work.batch):
            yield matrix[order[start : start + work.batch]].toarray()

    return epoch
