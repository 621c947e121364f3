"""Who takes part where a GPU is fed: one peer a file, each the best way its users know.

Batches arrive as tensors of the peer's framework, on the GPU. Where a peer can go on from one epoch to the next
without stopping, it does.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["endless_indices", "epochs_of", "index_batches"]

WORKERS = 14  # processes that a loader may start


def index_batches(work: Work, generator: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    """The rows of each batch of one shuffled epoch."""
    order = generator.permutation(work.rows)
    for start in range(0, work.rows, work.batch):
        yield order[start : start + work.batch]


def endless_indices(work: Work) -> Iterator[np.ndarray[Any, Any]]:
    """The same, epoch after epoch."""
    generator = np.random.default_rng(0)
    while True:
        yield from index_batches(work, generator)


def epochs_of(work: Work, batches: Iterator[Any]) -> StartEpoch:
    """Epochs cut from a loader that runs on for ever."""
    return lambda: islice(batches, work.batches)
