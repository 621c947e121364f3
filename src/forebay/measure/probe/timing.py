"""Timing functions of the probe, and the host memory that its measurements share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array

__all__ = ["ROW_NBYTES", "SLOT_NBYTES", "WINDOW_NBYTES", "Buffers", "measure_median", "measure_rate"]

MAX_SAMPLES = 9
MEDIAN_SECONDS = 0.2  # no further sample starts after this time
WINDOW_NBYTES = 64 << 20  # bytes that one copy moves
MAX_WINDOWS = 5  # 320 MiB: more than a CPU cache, and below 512 MiB together with the target buffer
MEMORY_DIVISOR = 8  # the source takes at most an eighth of the memory, because a container may have little
SLOT_NBYTES = 8 << 20  # size of a group of a few batches
ROW_NBYTES = (64, 400, 4096, 65536, 150528)  # row sizes to measure; the last one is an image of 224x224x3 bytes
_PAGE_NBYTES = 4096


def measure_median(sample: Callable[[], float], *, seconds: float = MEDIAN_SECONDS, warm_up: bool = True) -> float:
    """Return the median of up to `MAX_SAMPLES` samples.

    `sample` returns one measurement. No further sample starts once `seconds` have passed.
    """
    if warm_up:
        sample()
    samples, deadline = [sample()], time.perf_counter() + seconds
    while len(samples) < MAX_SAMPLES and time.perf_counter() < deadline:
        samples.append(sample())
    return float(np.median(samples))


def measure_rate(nbytes: int, move: Callable[[], object]) -> float:
    """Call `move` once, which moves `nbytes`, and return its bytes per second."""
    start = time.perf_counter()
    move()
    return nbytes / (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Host memory for measurements: a source of several windows, and a target of one window.

    The kernel has already allocated every page, so that no measurement includes page faults.
    """

    source: Array
    target: Array

    @classmethod
    def for_memory(cls, memory_nbytes: int) -> "Buffers":
        """Allocate buffers for a machine, or a container, with this much memory."""
        windows = max(1, min(MAX_WINDOWS, memory_nbytes // MEMORY_DIVISOR // WINDOW_NBYTES))
        return cls(_allocate(windows * WINDOW_NBYTES), _allocate(WINDOW_NBYTES))

    def windows(self) -> Iterator[Array]:
        """Yield the windows of the source. All of them together exceed most CPU caches."""
        for start in range(0, len(self.source), WINDOW_NBYTES):
            yield self.source[start : start + WINDOW_NBYTES]

    def rows(self, row_nbytes: int) -> Array:
        """Return the source as a two-dimensional array of rows of this size."""
        count = len(self.source) // row_nbytes
        return self.source[: count * row_nbytes].reshape(count, row_nbytes)


def _allocate(nbytes: int) -> Array:
    """Allocate whole pages of private memory, so that they can be page-locked."""
    block = np.empty(nbytes + _PAGE_NBYTES, np.uint8)
    start = -block.ctypes.data % _PAGE_NBYTES
    block.fill(1)  # makes the kernel allocate the pages
    return block[start : start + nbytes]
