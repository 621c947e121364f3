"""Timing functions of the probe, and the host memory that its measurements share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array

__all__ = ["ROW_NBYTES", "SLOT_NBYTES", "WINDOW_NBYTES", "Buffers", "measure_median", "measure_rate"]

MAX_SAMPLES = 9  # per median; more samples would make the probe slower, and the median only slightly more stable
MEDIAN_SECONDS = 0.2  # period after the first sample in which further samples start
WINDOW_NBYTES = 64 << 20  # 64 MiB, which one copy moves
MAX_WINDOWS = 5  # 320 MiB: more than a CPU cache, and below 512 MiB together with the target buffer
MEMORY_DIVISOR = 8  # the source takes at most an eighth of the memory, but at least one window
SLOT_NBYTES = 8 << 20  # 8 MiB, which a thread gathers at a time, and which one call reads from or writes to the disk
ROW_NBYTES = (64, 400, 4096, 65536, 150528)  # row sizes to measure; the last one is an image of 224x224x3 bytes
_PAGE_NBYTES = 4096  # bytes of a memory page


def measure_median(sample: Callable[[], float], *, seconds: float = MEDIAN_SECONDS, warm_up: bool = True) -> float:
    """Return the median of 1 to `MAX_SAMPLES` samples.

    `sample` returns one measurement. Further samples start until `seconds` have passed after the first sample. With
    `warm_up`, `sample` is called once before, and this result does not count.
    """
    if warm_up:
        sample()
    samples, deadline = [sample()], time.perf_counter() + seconds
    while len(samples) < MAX_SAMPLES and time.perf_counter() < deadline:
        samples.append(sample())
    return float(np.median(samples))


def measure_rate(nbytes: int, move: Callable[[], object]) -> float:
    """Call `move`, which moves `nbytes` bytes, and return the bytes per second."""
    start = time.perf_counter()
    move()
    return nbytes / (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Host memory for measurements: a source of several windows, and a target of one window.

    A window is a part of `WINDOW_NBYTES`. The kernel has already allocated every page, so that no measurement includes
    page faults.
    """

    source: Array
    target: Array

    @classmethod
    def for_memory(cls, memory_nbytes: int) -> "Buffers":
        """Allocate buffers for a machine, or a container, with this much memory."""
        windows = max(1, min(MAX_WINDOWS, memory_nbytes // MEMORY_DIVISOR // WINDOW_NBYTES))
        return cls(_allocate(windows * WINDOW_NBYTES), _allocate(WINDOW_NBYTES))

    def windows(self) -> Iterator[Array]:
        """Yield the windows of the source."""
        for start in range(0, len(self.source), WINDOW_NBYTES):
            yield self.source[start : start + WINDOW_NBYTES]

    def rows(self, row_nbytes: int) -> Array:
        """Return the source as a two-dimensional array of rows of this size."""
        count = len(self.source) // row_nbytes
        return self.source[: count * row_nbytes].reshape(count, row_nbytes)


def _allocate(nbytes: int) -> Array:
    """Allocate memory that starts at a page, because only whole pages can be page-locked."""
    block = np.empty(nbytes + _PAGE_NBYTES, np.uint8)
    start = -block.ctypes.data % _PAGE_NBYTES
    block.fill(1)  # makes the kernel allocate the pages
    return block[start : start + nbytes]
