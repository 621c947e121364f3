"""Weighted sampling: `Sampled`, an order that draws positions of its inner order by weight.

With replacement, each position is an independent draw from an alias table, in constant time. Without replacement, every
position of the inner order gets a random key per epoch, and the epoch has the positions with the smallest keys
(Efraimidis and Spirakis, 2006).

All random numbers are hashes of (seed, epoch, position). The module uses only integer arithmetic and the basic float
operations, which IEEE 754 rounds equally on every machine. So an order is the same everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.order.choices import PositionTable, hash_array
from forebay.order.device_steps import DeviceStep, DeviceSteps, DrawAlias, join_steps
from forebay.order.epoch_cache import CACHED_EPOCHS, EpochCache
from forebay.order.orders import Order, WrappingOrder
from forebay.order.permutation import Positions, derive_key, stable_argsort

__all__ = ["MAX_WEIGHTS", "AliasTable", "KeySort", "Sampled", "WeightedDraw", "Weights"]

Weights: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

MAX_WEIGHTS = 1 << 30  # with more, the sum of all bucket sizes (`_BUCKET` each) could exceed 63 bits
_BUCKET = 1 << 32  # size of each bucket of an alias table; a point in it is a number of 32 bits
_LOW_HALF = np.uint64(_BUCKET - 1)
_SAMPLE_KEY = int.from_bytes(b"sample", "big")  # in the derived key: a shuffle with the same seed has another key
_CHUNK = 1 << 13  # weights that the construction of an alias table handles at a time, in the CPU cache
_LOG_TERMS = 11  # of the series in `_log`; the error is then below 1e-17


class WeightedDraw(Protocol):
    """Draws indices of weights."""

    @property
    def digest(self) -> str:
        """A hash of the weights."""
        ...

    def draw(self, key: int, positions: Positions) -> Positions:
        """Return the number at each position of the random sequence that the key selects."""
        ...

    def device_step(self, key: int) -> DeviceStep | None:
        """Return the step with which a device draws; None if it cannot."""
        ...

    @property
    def epoch_nbytes(self) -> int:
        """Upper limit of the bytes for tables of single epochs, while one of them is computed."""
        ...


@dataclass(frozen=True, slots=True)
class Sampled(WrappingOrder):
    """`count` positions of the inner order, drawn by weight in each epoch."""

    inner: Order
    sampler: WeightedDraw = field(compare=False, repr=False)
    seed: int
    count: int
    replacement: bool
    digest: str  # a hash of the weights
    is_sequential: bool = False
    is_fixed: bool = False
    is_ascending: bool = False

    @classmethod
    def of(cls, inner: Order, weights: Weights, *, seed: int, count: int, replacement: bool) -> "Sampled":
        """Build the order and its table.

        The weights are finite and not negative, and not all of them are 0.
        """
        sampler: WeightedDraw = AliasTable(weights) if replacement else KeySort(weights, count)
        return cls(inner, sampler, seed, count, replacement, sampler.digest)

    @property
    def length(self) -> int:
        return self.count

    @property
    def repeats_rows(self) -> bool:
        return self.replacement or self.inner.repeats_rows

    @property
    def epoch_nbytes(self) -> int:
        return self.sampler.epoch_nbytes + self.inner.epoch_nbytes

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.inner.rows(epoch, self.sampler.draw(self._key(epoch), positions))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return join_steps([self.sampler.device_step(self._key(epoch))], self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("sampled", self.seed, self.count, self.replacement, self.digest, *self.inner.describe())

    def _key(self, epoch: int) -> int:
        return derive_key(self.seed, epoch, _SAMPLE_KEY)


class AliasTable:
    """Draws with replacement, in constant time per draw.

    The table has at least one bucket per weight, all of the same size. A random number selects a bucket and a point in
    it. Below the bucket's threshold, the draw is the bucket's own number, else its alias. The number of buckets is a
    power of two, so that random bits select all buckets equally often. The entry of a bucket has the alias in the upper
    32 bits and the threshold in the lower 32 bits, so that a draw reads memory once.
    """

    epoch_nbytes = 0

    def __init__(self, weights: Weights) -> None:
        self.digest = hash_array(weights)
        self._bucket_bits = max(1, (len(weights) - 1).bit_length())
        self._entries = _alias_entries(_round_weights(weights, 1 << self._bucket_bits))

    def draw(self, key: int, positions: Positions) -> Positions:
        bits = _random_bits(key, positions)
        buckets = bits >> np.uint64(64 - self._bucket_bits)  # the highest bits; the next 32 bits are the point
        bits >>= np.uint64(32 - self._bucket_bits)
        bits &= _LOW_HALF
        # No bucket is outside of the table. With the default mode "raise", NumPy is slower.
        entries = self._entries.take(buckets.view(np.int64), mode="clip")
        is_own = bits < np.bitwise_and(entries, _LOW_HALF)
        entries >>= np.uint64(32)  # the aliases
        drawn: Array = np.where(is_own, buckets, entries)  # several times faster than `np.copyto(where=)`
        return drawn.view(np.int64)

    def device_step(self, key: int) -> DeviceStep | None:
        return DrawAlias(self._entries, self._bucket_bits, key & (1 << 64) - 1)


class KeySort:
    """Draws without replacement: sorts a random key of each weight, once per epoch."""

    def __init__(self, weights: Weights, count: int) -> None:
        self.digest = hash_array(weights)
        numbers = np.flatnonzero(weights)
        self._weights, self._count = weights[numbers], count
        self._numbers = numbers.astype(np.uint32)  # `MAX_WEIGHTS` needs fewer bits
        self._epochs = EpochCache[PositionTable]()

    @property
    def epoch_nbytes(self) -> int:
        drawn, weights = self._count, len(self._weights)
        partition_nbytes = weights * (8 + 8 + 1)  # keys, a copy of them, and which ones are chosen
        choice_nbytes = weights * 8 + drawn * (8 + 8)  # keys, indices of the chosen ones, and their keys
        sort_nbytes = drawn * (4 + 8 + 8 + 8 + 1)  # numbers, keys, indices, sorted keys, and which ones are equal
        cached_nbytes = CACHED_EPOCHS * drawn * self._numbers.itemsize
        return cached_nbytes + max(partition_nbytes, choice_nbytes, sort_nbytes)

    def draw(self, key: int, positions: Positions) -> Positions:
        return self._epochs.find(key, lambda: self._draw_all(key))[positions].astype(np.int64)

    def device_step(self, key: int) -> DeviceStep | None:
        return None  # each epoch has a new table, which would be uploaded for one epoch only

    def _draw_all(self, key: int) -> PositionTable:
        keys = self._random_keys(key)
        if self._count == len(keys):
            return np.asarray(self._numbers[stable_argsort(keys)])
        largest = np.partition(keys, self._count - 1)[self._count - 1]
        chosen = np.flatnonzero(keys <= largest)
        keys = keys[chosen]
        numbers = self._numbers[chosen]
        del chosen  # before the sort, which needs more memory
        return np.asarray(numbers[stable_argsort(keys)[: self._count]])

    def _random_keys(self, key: int) -> Weights:
        """Return a random key for each weight above 0."""
        keys = np.empty(len(self._weights))
        with np.errstate(over="ignore"):  # the key of a tiny weight may be infinite, and comes last
            for chunk in _chunks(len(keys)):
                np.divide(_exponentials(_random_bits(key, self._numbers[chunk])), self._weights[chunk], out=keys[chunk])
        return keys


def _random_bits(key: int, positions: PositionTable) -> Array:
    """Return 64 random bits for each position: SplitMix64, which can be computed at any position."""
    numbers = positions.astype(np.uint64)
    numbers *= np.uint64(0x9E3779B97F4A7C15)
    numbers += np.uint64(key & (1 << 64) - 1)
    shifted = np.empty_like(numbers)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= np.right_shift(numbers, np.uint64(shift), out=shifted)
        numbers *= np.uint64(factor)
    numbers ^= np.right_shift(numbers, np.uint64(31), out=shifted)
    return numbers


def _round_weights(weights: Weights, buckets: int) -> Array:
    """Return whole numbers in proportion to the weights, then zeros.

    Their sum is the size of all buckets together.
    """
    scaled: Weights = weights / weights.max()
    # `np.sum` may add in a different order on another machine, and Python's `sum` adds differently since Python 3.12.
    # `accumulate` and a loop always add from left to right.
    total = 0.0
    for chunk in _chunks(len(scaled)):
        total += float(np.add.accumulate(scaled[chunk])[-1])
    size = buckets * _BUCKET
    scaled *= size / total
    rounded = np.zeros(buckets, np.int64)
    rounded[: len(weights)] = np.rint(scaled, out=scaled)
    # The largest weight has at least `_BUCKET`, which is much more than all rounding errors together.
    rounded[np.argmax(rounded)] += size - int(rounded.sum())
    return rounded


def _alias_entries(sizes: Array) -> Array:
    """Return the entries of an alias table for rounded weights.

    The sum of the weights is the size of all buckets together.

    The large weights fill the free space in the buckets of small weights, one after the other, each until it fits into
    its own bucket. The remaining space there is for the next large weight. With the prefix sums of the free space and
    of the excess, `_search_sorted` finds the weight that fills each bucket, without a loop over single weights.
    """
    entries = np.arange(len(sizes), dtype=np.uint64)
    entries <<= np.uint64(32)
    small, large = np.flatnonzero(sizes < _BUCKET), np.flatnonzero(sizes > _BUCKET)
    free_sums, excess_sums = np.cumsum(_BUCKET - sizes[small]), np.cumsum(sizes[large] - _BUCKET)
    for chunk in _chunks(len(small)):
        buckets, thresholds = small[chunk], sizes[small[chunk]]
        filled_before = free_sums[chunk] - (_BUCKET - thresholds)
        aliases = large[_search_sorted(excess_sums, filled_before, side="right")]
        entries[buckets] = aliases << 32 | thresholds
    for chunk in _chunks(len(large) - 1):
        excess = excess_sums[chunk]
        # What each large weight lacks to fill its own bucket.
        missing = free_sums[_search_sorted(free_sums, excess, side="left")] - excess
        entry = large[chunk.start + 1 : chunk.stop + 1] << 32 | _BUCKET - missing
        buckets = large[chunk]
        entries[buckets] = np.where(missing > 0, entry, buckets << 32)
    return entries


def _chunks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, length)) for start in range(0, length, _CHUNK))


def _search_sorted(numbers: Array, queries: Array, side: Literal["left", "right"]) -> Array:
    """Return `np.searchsorted(numbers, queries, side)` for ascending queries.

    A stable sort merges two sorted sequences in linear time, which takes less time than a binary search per query.
    """
    first, last = np.searchsorted(numbers, queries[[0, -1]], side=side)
    window = numbers[first:last]
    if side == "left":
        is_query = np.argsort(np.concatenate((queries, window)), kind="stable") < len(queries)
    else:
        is_query = np.argsort(np.concatenate((window, queries)), kind="stable") >= len(window)
    found: Array = np.flatnonzero(is_query) - np.arange(len(queries)) + first
    return found


def _exponentials(bits: Array) -> Weights:
    """Return exponentially distributed numbers, from 64 random bits each."""
    uniform = (bits >> np.uint64(12)).astype(np.float64)
    uniform += 0.5  # with 53 bits, the largest sum would be rounded up, and the result would be 0
    uniform *= 2.0**-52
    return -_log(uniform)


def _log(numbers: Weights) -> Weights:
    """Return natural logarithms. `np.log` may differ in its last bit between machines."""
    mantissas, exponents = np.frexp(numbers)  # mantissas are from 0.5 to 1
    is_below = mantissas < np.sqrt(0.5)
    mantissas[is_below] *= 2.0
    ratios = (mantissas - 1.0) / (mantissas + 1.0)
    squares = ratios * ratios
    series = np.full_like(ratios, 1.0 / (2 * _LOG_TERMS - 1))
    for odd in range(2 * _LOG_TERMS - 3, 0, -2):
        series *= squares
        series += 1.0 / odd
    result: Weights = 2.0 * ratios * series + (exponents - is_below) * 0.6931471805599453
    return result
