"""Speed of host memory: copies and gathers of rows by several threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from forebay.core.ceilings import CopySpeed, HostCeilings, HostGather, RowSpeed, RowSpeeds
from forebay.core.spec import Array
from forebay.measure.probe.timing import ROW_NBYTES, SLOT_NBYTES, WINDOW_NBYTES, Buffers, measure_median, measure_rate
from forebay.sources.arrays import make_gather

__all__ = ["measure_host", "thread_counts"]

FILLS = 2  # how often a thread fills its slot in one sample
MAX_GATHER_THREADS = WINDOW_NBYTES // SLOT_NBYTES  # each thread needs its own slot in the target buffer


def measure_host(buffers: Buffers, cores: int) -> HostCeilings:
    """Measure the speed of copies and of gathers of rows, with different numbers of threads."""
    with ThreadPoolExecutor(max_workers=cores, thread_name_prefix="forebay-probe") as pool:
        copies = tuple(CopySpeed(threads, _measure_copy(buffers, threads, pool)) for threads in thread_counts(cores))
        gathers = tuple(
            _measure_gathers(buffers, threads, pool) for threads in sorted({1, min(cores, MAX_GATHER_THREADS)})
        )
    return HostCeilings(copies, gathers)


def thread_counts(cores: int) -> list[int]:
    """Return the powers of two up to `cores`, and `cores` itself.

    >>> thread_counts(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({*(1 << power for power in range(cores.bit_length())), cores})


def _measure_copy(buffers: Buffers, threads: int, pool: ThreadPoolExecutor) -> float:
    """Return the bytes per second that all threads copy together.

    A window is a part of the source. Every thread copies its own part of each window.
    """
    edges = np.linspace(0, WINDOW_NBYTES, threads + 1).astype(int).tolist()

    def copy(start: int, stop: int) -> None:
        for window in buffers.windows():
            np.copyto(buffers.target[start:stop], window[start:stop])

    return measure_median(
        lambda: measure_rate(len(buffers.source), lambda: list(pool.map(copy, edges[:-1], edges[1:])))
    )


def _measure_gathers(buffers: Buffers, threads: int, pool: ThreadPoolExecutor) -> HostGather:
    points = (RowSpeed(row_nbytes, _measure_gather(buffers, row_nbytes, threads, pool)) for row_nbytes in ROW_NBYTES)
    return HostGather(threads, RowSpeeds(tuple(points)))


def _measure_gather(buffers: Buffers, row_nbytes: int, threads: int, pool: ThreadPoolExecutor) -> float:
    """Return the bytes per second that all threads gather together.

    Each thread gathers random rows into a slot of its own.
    """
    rows, slots = buffers.rows(row_nbytes), list(_split_target(buffers, row_nbytes, threads))
    gather, random = make_gather(rows), np.random.default_rng(0)

    def fill(slot: Array, batches: Array) -> None:
        for indices in batches:
            gather(indices, slot)

    def sample() -> float:
        # Every sample draws new rows, because the CPU cache may contain the rows of the previous sample.
        indices = random.integers(len(rows), size=(threads, FILLS, len(slots[0])))
        return measure_rate(indices.size * row_nbytes, lambda: list(pool.map(fill, slots, indices)))

    return measure_median(sample)


def _split_target(buffers: Buffers, row_nbytes: int, threads: int) -> Iterator[Array]:
    """Yield a slot for each thread: rows in a part of the target buffer."""
    count = SLOT_NBYTES // row_nbytes
    for number in range(threads):
        start = number * SLOT_NBYTES
        yield buffers.target[start : start + count * row_nbytes].reshape(count, row_nbytes)
