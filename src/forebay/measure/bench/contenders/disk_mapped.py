"""The same order gathered from a mapped file, page fault by page fault: what one would write by hand."""

from collections.abc import Callable
from time import perf_counter

import numpy as np

import forebay as fb
from forebay.measure.bench.model import Work

__all__ = ["reading"]


def reading(work: Work) -> Callable[[float], float]:
    order = fb.from_files(work.path).shuffle(seed=0, block=work.options.get("block")).order
    assert order is not None
    out = np.empty((work.batch, *work.shape), work.dtype)

    def measure(seconds: float) -> float:
        rows = np.load(work.path, mmap_mode="r")  # anew each time: while it is mapped, the page cache forgets nothing
        began, nbytes = perf_counter(), 0
        for start in range(0, work.rows - work.batch, work.batch):
            chosen = order.rows(0, np.arange(start, start + work.batch))
            nbytes += np.take(rows, chosen, axis=0, out=out, mode="clip").nbytes
            if perf_counter() >= began + seconds:
                break
        return nbytes / (perf_counter() - began)

    return measure
