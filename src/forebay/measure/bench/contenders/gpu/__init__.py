"""The contenders of the GPU cases: one file per framework.

Batches arrive on the GPU as arrays of the contender's framework, or as blocks of device memory in `dma_peak`. If a
loader can run epoch after epoch without a gap, its contender runs the loader endlessly, and `split_into_epochs` divides
the batches into epochs.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["endless_index_batches", "index_batches", "split_into_epochs"]


def index_batches(work: Workload, generator: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the row indices of each batch of one shuffled epoch."""
    order = generator.permutation(work.rows)
    for start in range(0, work.rows, work.batch):
        yield order[start : start + work.batch]


def endless_index_batches(work: Workload) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the row indices of each batch, epoch after epoch."""
    generator = np.random.default_rng(0)
    while True:
        yield from index_batches(work, generator)


def split_into_epochs(work: Workload, batches: Iterator[Any]) -> StartEpoch:
    """Divide the batches of an endless loader into epochs."""
    return lambda: islice(batches, work.batches)
