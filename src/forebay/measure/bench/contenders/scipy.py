"""SciPy, on sparse rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.measure.bench.data import make_csr
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["dense_slices"]


def dense_slices(work: Workload) -> StartEpoch:
    """Select the rows of each batch with SciPy, and make them dense with `toarray`."""
    matrix, generator = make_csr(work), np.random.default_rng(0)

    def epoch() -> Iterator[Any]:
        order = generator.permutation(work.rows)
        for start in range(0, work.rows, work.batch):
            yield matrix[order[start : start + work.batch]].toarray()

    return epoch
