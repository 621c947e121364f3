"""The entries of an alias table, computed from weights by array operations.

The weights are rounded to whole numbers first, so that the table has exactly the rounded weights. The construction
overwrites the rounded weights by the entries. Besides them, it needs 4 bytes for each bucket, and some MiB.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array

__all__ = ["MAX_WEIGHTS", "alias_entries"]

MAX_WEIGHTS = 1 << 30  # with more, the sum of all bucket sizes (`_BUCKET` each) could exceed 63 bits
_BUCKET = 1 << 32  # size of each bucket of an alias table; a point in it is a number of 32 bits
_SUM_CHUNK = 1 << 13  # weights that are added together; the sum, and so the table, depends on this number
_CHUNK = 1 << 14  # buckets that are handled at a time; their temporary arrays fit in the CPU cache


def alias_entries(weights: Array, bucket_bits: int) -> Array:
    """Return the entry of each of `1 << bucket_bits` buckets: the alias and the threshold (`AliasTable`).

    There are at least as many buckets as weights.
    """
    sizes = _round_weights(weights, 1 << bucket_bits)
    small, large = _split_buckets(sizes)
    _pair_buckets(sizes, small, large)
    return sizes.view(np.uint64)


def _round_weights(weights: Array, buckets: int) -> Array:
    """Return one whole number for each bucket, in proportion to its weight.

    The number is 0 for the buckets at the end, which have no weight. The sum of the numbers is the size of all buckets
    together.
    """
    memory = np.zeros(buckets)
    scaled = np.divide(weights, weights.max(), out=memory[: len(weights)])
    # `np.sum` may add in a different order on another machine, and Python's `sum` adds differently since Python 3.12.
    # `accumulate` and a loop always add from left to right.
    total = 0.0
    for chunk in _chunks(len(scaled), _SUM_CHUNK):
        total += float(np.add.accumulate(scaled[chunk])[-1])
    size = buckets * _BUCKET
    rounded: Array = memory.view(np.int64)  # the whole numbers replace the floats; 0.0 and 0 have the same bits
    for chunk in _chunks(len(scaled), _CHUNK):
        rounded[: len(scaled)][chunk] = np.rint(scaled[chunk] * (size / total)).astype(np.int64)
    # The largest weight has at least `_BUCKET`, which is much more than all rounding errors together.
    rounded[np.argmax(rounded)] += size - int(rounded.sum())
    return rounded


def _split_buckets(sizes: Array) -> tuple[Array, Array]:
    """Return the buckets of small weights, which leave free space, and those of large weights, which exceed theirs.

    Replace the sizes of all other buckets by their entries: such a bucket is its own alias.
    """
    buckets = np.empty(len(sizes), np.uint32)  # small ones from the start on, large ones from the end on
    small_count, large_start = 0, len(sizes)
    for chunk in _chunks(len(sizes), _CHUNK):
        part = sizes[chunk]
        small, large = np.flatnonzero(part < _BUCKET), np.flatnonzero(part > _BUCKET)
        if len(small) + len(large) < len(part):
            full = np.flatnonzero(part == _BUCKET)
            part[full] = (full + chunk.start) << 32
        buckets[small_count : small_count + len(small)] = small + chunk.start
        buckets[large_start - len(large) : large_start] = large[::-1] + chunk.start
        small_count, large_start = small_count + len(small), large_start - len(large)
    return buckets[:small_count], buckets[large_start:][::-1]


@dataclass(slots=True)
class _Progress:
    """How many buckets have entries, and the sum of their free space or of their excess."""

    done: int = 0
    total: int = 0


def _pair_buckets(sizes: Array, small: Array, large: Array) -> None:
    """Replace the sizes of small and large weights by the entries of their buckets.

    One large weight after the other fills the free space of small weights. Each bucket has only one alias, so a large
    weight fills its last small bucket completely, also if this takes more than its excess. It then lacks some size in
    its own bucket, and the next large weight fills this space.

    The prefix sums of the free space and of the excess tell which large weight fills each bucket. Both sequences end
    with the same sum. The loop merges a window of each of them, and enters what both windows together determine: at
    least all buckets of one window. The lengths of the windows have the ratio of all small and all large weights, so
    that usually little is left of either.
    """
    free, excess = _Progress(), _Progress()
    windows = max(1, max(len(small), len(large)) // _CHUNK)
    small_window, large_window = len(small) // windows + 1, len(large) // windows + 1
    while excess.done < len(large):  # the last large weight fills the last small one
        small_buckets = small[free.done : free.done + small_window].astype(np.int64)
        large_buckets = large[excess.done : excess.done + large_window + 1].astype(np.int64)  # one more, as last alias
        small_sizes = sizes[small_buckets]
        excesses = sizes[large_buckets[:large_window]] - _BUCKET
        free_sums = np.cumsum(np.concatenate(([free.total], _BUCKET - small_sizes)))  # before each bucket, then the end
        excess_sums = np.cumsum(excesses) + excess.total
        smaller_excess, smaller_free = _merge(free_sums, excess_sums)
        free_done = int(free_sums[:-1].searchsorted(excess_sums[-1]))
        excess_done = int(excess_sums.searchsorted(free_sums[-1], side="right"))

        aliases = large_buckets[smaller_excess[:free_done]]
        sizes[small_buckets[:free_done]] = aliases << 32 | small_sizes[:free_done]

        filled = large_buckets[:excess_done]
        # What each large weight lacks to fill its own bucket.
        missing = free_sums[smaller_free[:excess_done]] - excess_sums[:excess_done]
        next_large = large_buckets[np.minimum(np.arange(1, excess_done + 1), len(large_buckets) - 1)]
        sizes[filled] = np.where(missing > 0, next_large << 32 | _BUCKET - missing, filled << 32)

        free.done, free.total = free.done + free_done, int(free_sums[free_done])
        excess.done += excess_done
        excess.total = int(excess_sums[excess_done - 1]) if excess_done else excess.total


def _merge(free_sums: Array, excess_sums: Array) -> tuple[Array, Array]:
    """Return how many excess sums each free sum reaches, and how many free sums are below each excess sum.

    Both sequences ascend. A stable sort merges them in linear time, which takes less time than a binary search for each
    number. The numbers have one more bit, which tells the sequence: a free sum comes after an equal excess sum.
    """
    merged = np.concatenate((excess_sums, free_sums))
    merged -= min(int(free_sums[0]), int(excess_sums[0]))
    merged <<= 1
    merged[len(excess_sums) :] |= 1
    merged.sort(kind="stable")
    is_free = (merged & 1) == 1
    reached = np.flatnonzero(is_free) - np.arange(len(free_sums))
    below = np.flatnonzero(~is_free) - np.arange(len(excess_sums))
    return reached, below


def _chunks(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
