"""One measurement: the median of a few samples in limited time; and the memory that all measurements share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array

__all__ = ["ROW_NBYTES", "SLOT_NBYTES", "WINDOW_NBYTES", "Buffers", "measure_median", "measure_rate"]

MAX_SAMPLES = 9
MEDIAN_SECONDS = 0.2
WINDOW_NBYTES = 64 << 20
MAX_WINDOWS = 5  # larger than a large CPU cache; together with the target, still below 512 MiB
MEMORY_DIVISOR = 8  # a container may have little memory: use at most an eighth of it
SLOT_NBYTES = 8 << 20  # a few batches
ROW_NBYTES = (64, 400, 4096, 65536, 150528)
_PAGE_NBYTES = 4096


def measure_median(sample: Callable[[], float], *, seconds: float = MEDIAN_SECONDS, warm_up: bool = True) -> float:
    """Return the median of up to nine samples; no sample starts after the time is up."""
    if warm_up:
        sample()
    samples, deadline = [sample()], time.perf_counter() + seconds
    while len(samples) < MAX_SAMPLES and time.perf_counter() < deadline:
        samples.append(sample())
    return float(np.median(samples))


def measure_rate(nbytes: int, move: Callable[[], object]) -> float:
    """Return bytes per second of one move."""
    start = time.perf_counter()
    move()
    return nbytes / (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Host memory for measurements: a source of several windows, and a target of one window.

    Every page is already allocated by the kernel.
    """

    source: Array
    target: Array

    @classmethod
    def for_memory(cls, memory_nbytes: int) -> "Buffers":
        """Allocate buffers for a machine, or a container, with this much memory."""
        windows = max(1, min(MAX_WINDOWS, memory_nbytes // MEMORY_DIVISOR // WINDOW_NBYTES))
        return cls(_allocate(windows * WINDOW_NBYTES), _allocate(WINDOW_NBYTES))

    def windows(self) -> Iterator[Array]:
        """Yield the windows of the source, so that consecutive copies do not read from the CPU cache."""
        for start in range(0, len(self.source), WINDOW_NBYTES):
            yield self.source[start : start + WINDOW_NBYTES]

    def rows(self, row_nbytes: int) -> Array:
        """Return the source as rows of this size."""
        count = len(self.source) // row_nbytes
        return self.source[: count * row_nbytes].reshape(count, row_nbytes)


def _allocate(nbytes: int) -> Array:
    """Allocate whole pages of private memory, so that they can be page-locked."""
    block = np.empty(nbytes + _PAGE_NBYTES, np.uint8)
    start = -block.ctypes.data % _PAGE_NBYTES
    block.fill(1)
    return block[start : start + nbytes]
