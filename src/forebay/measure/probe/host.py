"""What the processor and its memory do: copies by many threads, and rows gathered as a feed gathers them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from forebay.core.ceilings import CopySpeed, HostFigures, HostGather, RowSpeed, RowSpeeds
from forebay.core.spec import Array
from forebay.measure.probe.timing import ROW_NBYTES, SLOT_NBYTES, WINDOW_NBYTES, Buffers, median, rate
from forebay.sources.arrays import gather_leaf

__all__ = ["measure_host", "thread_counts"]

FILLS = 2  # of a thread's slot in one repeat
MOST_GATHERING = WINDOW_NBYTES // SLOT_NBYTES  # threads: the target has so many slots, and a feed takes no more


def measure_host(buffers: Buffers, cores: int) -> HostFigures:
    with ThreadPoolExecutor(max_workers=cores, thread_name_prefix="forebay-probe") as pool:
        copies = tuple(CopySpeed(threads, _copy(buffers, threads, pool)) for threads in thread_counts(cores))
        gathers = tuple(_gathers(buffers, threads, pool) for threads in sorted({1, min(cores, MOST_GATHERING)}))
    return HostFigures(copies, gathers)


def thread_counts(cores: int) -> list[int]:
    """
    >>> thread_counts(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({*(1 << power for power in range(cores.bit_length())), cores})


def _copy(buffers: Buffers, threads: int, pool: ThreadPoolExecutor) -> float:
    edges = np.linspace(0, WINDOW_NBYTES, threads + 1).astype(int).tolist()

    def copy(start: int, stop: int) -> None:
        for window in buffers.windows():
            np.copyto(buffers.target[start:stop], window[start:stop])

    return median(lambda: rate(len(buffers.source), lambda: list(pool.map(copy, edges[:-1], edges[1:]))))


def _gathers(buffers: Buffers, threads: int, pool: ThreadPoolExecutor) -> HostGather:
    points = (RowSpeed(row_nbytes, _gather(buffers, row_nbytes, threads, pool)) for row_nbytes in ROW_NBYTES)
    return HostGather(threads, RowSpeeds(tuple(points)))


def _gather(buffers: Buffers, row_nbytes: int, threads: int, pool: ThreadPoolExecutor) -> float:
    rows, slots = buffers.rows(row_nbytes), list(_slots(buffers, row_nbytes, threads))
    gather, numbers = gather_leaf(rows), np.random.default_rng(0)

    def fill(slot: Array, chosen: Array) -> None:
        for batch in chosen:
            gather(batch, slot)

    def sample() -> float:
        # Fresh row numbers each time, or the rows would come out of the cache.
        chosen = numbers.integers(len(rows), size=(threads, FILLS, len(slots[0])))
        return rate(chosen.size * row_nbytes, lambda: list(pool.map(fill, slots, chosen)))

    return median(sample)


def _slots(buffers: Buffers, row_nbytes: int, threads: int) -> Iterator[Array]:
    count = SLOT_NBYTES // row_nbytes
    for slot in range(threads):
        start = slot * SLOT_NBYTES
        yield buffers.target[start : start + count * row_nbytes].reshape(count, row_nbytes)
