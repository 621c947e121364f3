"""One figure: the median of a few repeats, within a bounded time; and the memory that all figures share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array

__all__ = ["ROW_NBYTES", "SLOT_NBYTES", "WINDOW_NBYTES", "Buffers", "median", "rate"]

REPEATS = 9
FIGURE_SECONDS = 0.2
WINDOW_NBYTES = 64 << 20
MOST_WINDOWS = 5  # more than a large cache holds; with a target beside them, still less than 512 MiB
MEMORY_SHARE = 8  # a container may hold little: no more than this part of it
SLOT_NBYTES = 8 << 20  # as much as a few batches
ROW_NBYTES = (64, 400, 4096, 65536, 150528)
_PAGE_NBYTES = 4096


def median(sample: Callable[[], float], *, seconds: float = FIGURE_SECONDS, warm_up: bool = True) -> float:
    """Of up to nine samples, the last of them begun before the time is up."""
    if warm_up:
        sample()
    samples, deadline = [sample()], time.perf_counter() + seconds
    while len(samples) < REPEATS and time.perf_counter() < deadline:
        samples.append(sample())
    return float(np.median(samples))


def rate(nbytes: int, move: Callable[[], object]) -> float:
    """Bytes a second of one move."""
    began = time.perf_counter()
    move()
    return nbytes / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Host memory to measure with, every page of it in place: a source of several windows, and a target of one."""

    source: Array
    target: Array

    @classmethod
    def of(cls, memory_nbytes: int) -> "Buffers":
        """Fit for a machine, or a container, of so much memory."""
        windows = max(1, min(MOST_WINDOWS, memory_nbytes // MEMORY_SHARE // WINDOW_NBYTES))
        return cls(_touched(windows * WINDOW_NBYTES), _touched(WINDOW_NBYTES))

    def windows(self) -> Iterator[Array]:
        """The source in pieces as large as the target: what is copied has not just been in the cache."""
        for start in range(0, len(self.source), WINDOW_NBYTES):
            yield self.source[start : start + WINDOW_NBYTES]

    def rows(self, row_nbytes: int) -> Array:
        """The source as rows."""
        count = len(self.source) // row_nbytes
        return self.source[: count * row_nbytes].reshape(count, row_nbytes)


def _touched(nbytes: int) -> Array:
    """Whole pages, so that they can be page-locked; private memory like that of the arrays people have."""
    block = np.empty(nbytes + _PAGE_NBYTES, np.uint8)
    start = -block.ctypes.data % _PAGE_NBYTES
    block.fill(1)
    return block[start : start + nbytes]
