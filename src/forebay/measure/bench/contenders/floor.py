"""The floor: one thread, one reused array, `np.take` over a fresh permutation. All ratios are to this."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.measure.bench.data import slow_python, source_array
from forebay.measure.bench.memory import available_nbytes
from forebay.measure.bench.model import Skip, StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    rows, generator = source_array(work), np.random.default_rng(0)
    out = np.empty((work.batch, *work.shape), rows.dtype)
    _refuse_huge_permutation(work)

    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        order = generator.permutation(work.rows)
        for start in range(0, work.rows, work.batch):
            indices = order[start : start + work.batch]
            # Without "clip" NumPy buffers the whole output first.
            yield np.take(rows, indices, axis=0, out=out[: len(indices)], mode="clip")

    return (lambda: map(slow_python, epoch())) if work.options.get("map") else epoch


def _refuse_huge_permutation(work: Work) -> None:
    # NumPy makes the indices and shuffles them in place; twice that leaves room for everybody else.
    needed, available = 2 * 8 * work.rows, available_nbytes()
    if available is not None and needed > available:
        raise Skip(f"a permutation of {work.rows:,} rows wants {needed >> 30} GiB free, {available >> 30} are there")
