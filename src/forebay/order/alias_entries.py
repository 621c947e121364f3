"""The entries of an alias table, computed from weights by array operations.

`order/sampling.py` describes the table. `alias_entries` first rounds the weights to whole numbers, which the table can
represent exactly. Then it overwrites the rounded weights by the entries. Besides the memory of the entries, it needs
4 bytes for each bucket and some MiB.
"""

from dataclasses import dataclass

import numpy as np

from forebay.core.rows import split_range
from forebay.core.spec import Array

__all__ = ["MAX_WEIGHTS", "alias_entries"]

MAX_WEIGHTS = 1 << 30  # with more, the sum of all bucket sizes (`_BUCKET` each) could exceed 63 bits
_BUCKET = 1 << 32  # size of each bucket; a point in a bucket is a number of 32 bits
_SUM_CHUNK = 1 << 13  # weights that `accumulate` adds at a time; another number would round the sum differently
_CHUNK = 1 << 14  # buckets that NumPy processes at a time; their temporary arrays fit in the CPU cache


def alias_entries(weights: Array, bucket_bits: int) -> Array:
    """Return the entries of `1 << bucket_bits` buckets, at least one bucket for each weight.

    An entry (uint64) has the alias of its bucket in the upper 32 bits, and the threshold in the lower 32 bits.
    """
    sizes = _round_weights(weights, 1 << bucket_bits)
    small, large = _split_buckets(sizes)
    _pair_buckets(sizes, small, large)
    return sizes.view(np.uint64)


def _round_weights(weights: Array, buckets: int) -> Array:
    """Return a whole number for each bucket, in proportion to its weight.

    The number is 0 for buckets at the end that have no weight. The sum of the numbers is the total size of all buckets.
    """
    memory = np.zeros(buckets)
    scaled = np.divide(weights, weights.max(), out=memory[: len(weights)])
    # `np.sum` may add in a different order on another machine, and Python's `sum` adds differently since Python 3.12.
    # `accumulate` and a loop always add from left to right.
    total = 0.0
    for chunk in split_range(len(scaled), _SUM_CHUNK):
        total += float(np.add.accumulate(scaled[chunk])[-1])
    size = buckets * _BUCKET
    rounded: Array = memory.view(np.int64)  # the whole numbers replace the floats; 0.0 and 0 have the same bits
    for chunk in split_range(len(scaled), _CHUNK):
        rounded[: len(scaled)][chunk] = np.rint(scaled[chunk] * (size / total)).astype(np.int64)
    # Correct the sum at the largest weight. Its number is at least `_BUCKET`, much more than the sum of all rounding
    # errors.
    rounded[np.argmax(rounded)] += size - int(rounded.sum())
    return rounded


def _split_buckets(sizes: Array) -> tuple[Array, Array]:
    """Return (buckets of small weights, buckets of large weights).

    A small weight leaves free space in its bucket, and a large weight exceeds its bucket. Where a weight fills its
    bucket exactly, replace its size by the entry: the bucket is its own alias.
    """
    buckets = np.empty(len(sizes), np.uint32)  # buckets of small weights from the start on, large ones from the end on
    small_count, large_start = 0, len(sizes)
    for chunk in split_range(len(sizes), _CHUNK):
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
    """Progress of `_pair_buckets` through the buckets of small weights, or of large ones."""

    done: int = 0  # number of buckets that have their entries
    total: int = 0  # sum of the free space of these buckets, or of their excess


def _pair_buckets(sizes: Array, small: Array, large: Array) -> None:
    """Replace the sizes of small and large weights by the entries of their buckets.

    One large weight after the other fills the free space of small weights. Each bucket has only one alias, so a large
    weight fills its last small bucket completely, even if this takes more than its excess. The large weight then leaves
    free space in its own bucket, which the next large weight fills.

    The prefix sums of the free space and of the excess show which large weight fills each bucket. Both sequences of
    sums end with the same sum. Each turn of the loop merges a window of both sequences, and writes the entries that
    these windows determine: at least all entries of one window. The lengths of the two windows have the same ratio as
    the numbers of small and large weights, so that a turn usually completes most of both windows.
    """
    free, excess = _Progress(), _Progress()
    windows = max(1, max(len(small), len(large)) // _CHUNK)
    small_window, large_window = len(small) // windows + 1, len(large) // windows + 1
    while excess.done < len(large):  # the last large weight fills the last small one
        small_buckets = small[free.done : free.done + small_window].astype(np.int64)
        # One more bucket than in the window: it may be the alias of the last bucket.
        large_buckets = large[excess.done : excess.done + large_window + 1].astype(np.int64)
        small_sizes = sizes[small_buckets]
        excesses = sizes[large_buckets[:large_window]] - _BUCKET
        # The sum of the free space before each bucket, then after the last one.
        free_sums = np.cumsum(np.concatenate(([free.total], _BUCKET - small_sizes)))
        excess_sums = np.cumsum(excesses) + excess.total
        smaller_excess, smaller_free = _merge(free_sums, excess_sums)
        free_done = int(free_sums[:-1].searchsorted(excess_sums[-1]))
        excess_done = int(excess_sums.searchsorted(free_sums[-1], side="right"))

        aliases = large_buckets[smaller_excess[:free_done]]
        sizes[small_buckets[:free_done]] = aliases << 32 | small_sizes[:free_done]

        filled = large_buckets[:excess_done]
        # The free space that each large weight leaves in its own bucket.
        missing = free_sums[smaller_free[:excess_done]] - excess_sums[:excess_done]
        next_large = large_buckets[np.minimum(np.arange(1, excess_done + 1), len(large_buckets) - 1)]
        sizes[filled] = np.where(missing > 0, next_large << 32 | _BUCKET - missing, filled << 32)

        free.done, free.total = free.done + free_done, int(free_sums[free_done])
        excess.done += excess_done
        excess.total = int(excess_sums[excess_done - 1]) if excess_done else excess.total


def _merge(free_sums: Array, excess_sums: Array) -> tuple[Array, Array]:
    """Count excess sums up to each free sum, and free sums below each excess sum.

    Both sequences ascend. A stable sort merges them in linear time, which takes less time than a binary search for each
    number. The lowest bit of the merged numbers is 1 for free sums, so a free sum comes after an equal excess sum.
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
