"""Weighted sampling: `Sampled`, an order that draws positions of its inner order by weight.

With replacement, each position is an independent draw from an alias table, in constant time. Without replacement, every
position of the inner order with a weight above 0 gets a random sort key in each epoch, and the epoch has the positions
with the smallest sort keys (Efraimidis and Spirakis, 2006).

Each random number is a hash of a position and of an epoch key, which is derived from the seed and the epoch. The module
uses only integer arithmetic and the basic float operations, which IEEE 754 rounds equally on every machine. So an order
is the same on every machine.
"""

import sys
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from forebay.core.c_functions import address_of
from forebay.core.spec import Array
from forebay.order.alias_entries import MAX_WEIGHTS, alias_entries
from forebay.order.choices import PositionTable, hash_array
from forebay.order.device_steps import DeviceStep, DeviceSteps, DrawAlias, join_steps
from forebay.order.epoch_cache import CACHED_EPOCHS, EpochCache
from forebay.order.orders import Order, WrappingOrder
from forebay.order.permutation import Positions, derive_key, stable_argsort
from forebay.order.row_numbers import load_draw_alias

__all__ = ["MAX_WEIGHTS", "AliasTable", "KeySort", "Sampled", "WeightedDraw", "Weights"]

Weights: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

_LOW_HALF = 0 if sys.byteorder == "little" else 1  # index of the lower half of a uint64 in a view as two uint32
_SAMPLE_KEY = int.from_bytes(b"sample", "big")  # part of the epoch key; a shuffle with the same seed has another key
_DRAW_STEP = 1 << 14  # draws that NumPy computes together; their temporary arrays stay in the cache of a CPU core
_CHUNK = 1 << 13  # weights that get sort keys together; their temporary arrays fit in the CPU cache
_LOG_TERMS = 11  # terms of the series in `_log`; the error is then below 1e-17


class WeightedDraw(Protocol):
    """Draws from weights at random. A draw returns the index of a weight."""

    @property
    def digest(self) -> str:
        """A hash of the weights."""
        ...

    def draw(self, epoch_key: int, positions: Positions) -> Positions:
        """Return the index of the drawn weight at each position.

        The epoch key selects a random sequence of draws. A position is a place in this sequence.
        """
        ...

    def device_step(self, epoch_key: int) -> DeviceStep | None:
        """Return the step with which a device draws; None if it cannot."""
        ...

    @property
    def epoch_nbytes(self) -> int:
        """Upper limit of the bytes for tables of single epochs, with temporary arrays."""
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
        """Return the order for these weights, one for each position of the inner order.

        The weights must be finite and not negative, and at least one weight must be above 0.
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
        return self.inner.rows(epoch, self.sampler.draw(self._epoch_key(epoch), positions))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return join_steps([self.sampler.device_step(self._epoch_key(epoch))], self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("sampled", self.seed, self.count, self.replacement, self.digest, *self.inner.describe())

    def _epoch_key(self, epoch: int) -> int:
        return derive_key(self.seed, epoch, _SAMPLE_KEY)


class AliasTable:
    """Draws with replacement, in constant time per draw.

    The table has at least one bucket per weight, all of the same size. Bucket i belongs to weight i. A random number
    selects a bucket and a point in it. If the point is below the bucket's threshold, the draw returns the index of the
    bucket, else the bucket's alias, which is usually the index of another weight. The number of buckets is a power of
    two, so that random bits select all buckets equally often. The entry of a bucket has the alias in the upper 32 bits
    and the threshold in the lower 32 bits, so that a draw reads memory once.
    """

    epoch_nbytes = 0

    def __init__(self, weights: Weights) -> None:
        self.digest = hash_array(weights)
        self._bucket_bits = max(1, (len(weights) - 1).bit_length())
        self._entries = alias_entries(weights, self._bucket_bits)

    def draw(self, epoch_key: int, positions: Positions) -> Positions:
        drawn = np.empty(len(positions), np.int64)
        draw_alias = load_draw_alias()
        if draw_alias is not None:
            numbers = np.ascontiguousarray(positions, np.int64)
            addresses = address_of(numbers), len(numbers), address_of(drawn), address_of(self._entries)
            draw_alias(*addresses, self._bucket_bits, epoch_key & (1 << 64) - 1)
            return drawn
        for start in range(0, len(positions), _DRAW_STEP):
            step = slice(start, start + _DRAW_STEP)
            self._draw_into(drawn[step].view(np.uint64), _random_bits(epoch_key, positions[step]))
        return drawn

    def _draw_into(self, drawn: Array, bits: Array) -> None:
        """Write to `drawn` the index that each of these random numbers draws."""
        buckets = bits >> np.uint64(64 - self._bucket_bits)  # the highest bits; the next 32 bits are the point
        bits >>= np.uint64(32 - self._bucket_bits)
        # No bucket is outside of the table, so "clip" changes none. The default mode "raise" takes more time.
        self._entries.take(buckets.view(np.int64), out=drawn, mode="clip")
        is_own = _low_halves(bits) < _low_halves(drawn)
        drawn >>= np.uint64(32)
        # Now `drawn` has the aliases. Where the draw returns the bucket, add bucket - alias. `np.where` is slower.
        buckets -= drawn
        buckets *= is_own
        drawn += buckets

    def device_step(self, epoch_key: int) -> DeviceStep | None:
        return DrawAlias(self._entries, self._bucket_bits, epoch_key & (1 << 64) - 1)


class KeySort:
    """Draws without replacement: once per epoch, it sorts the weights by random sort keys.

    The draws are the weights with the smallest sort keys. The sort key of a larger weight is smaller on average.
    """

    def __init__(self, weights: Weights, count: int) -> None:
        self.digest = hash_array(weights)
        indices = np.flatnonzero(weights)  # indices of the weights above 0
        self._weights, self._count = weights[indices], count
        self._indices = indices.astype(np.uint32)  # 32 bits are enough, because there are at most `MAX_WEIGHTS`
        self._epochs = EpochCache[PositionTable]()

    @property
    def epoch_nbytes(self) -> int:
        drawn, weights = self._count, len(self._weights)
        partition_nbytes = weights * (8 + 8 + 1)  # sort keys, their copy in `np.partition`, mask of the chosen keys
        choice_nbytes = weights * 8 + drawn * (8 + 8)  # all sort keys, indices of the chosen keys, chosen keys
        sort_nbytes = drawn * (4 + 8 + 8 + 8 + 1)  # indices, chosen keys, their order, sorted keys, mask of equal keys
        cached_nbytes = CACHED_EPOCHS * drawn * self._indices.itemsize
        return cached_nbytes + max(partition_nbytes, choice_nbytes, sort_nbytes)

    def draw(self, epoch_key: int, positions: Positions) -> Positions:
        return self._epochs.find(epoch_key, lambda: self._draw_all(epoch_key))[positions].astype(np.int64)

    def device_step(self, epoch_key: int) -> DeviceStep | None:
        return None  # the host would have to upload a new table in each epoch

    def _draw_all(self, epoch_key: int) -> PositionTable:
        sort_keys = self._sort_keys(epoch_key)
        if self._count == len(sort_keys):
            return np.asarray(self._indices[stable_argsort(sort_keys)])
        largest = np.partition(sort_keys, self._count - 1)[self._count - 1]
        chosen = np.flatnonzero(sort_keys <= largest)
        sort_keys = sort_keys[chosen]
        indices = self._indices[chosen]
        del chosen  # frees memory before the sort, which needs more
        return np.asarray(indices[stable_argsort(sort_keys)[: self._count]])

    def _sort_keys(self, epoch_key: int) -> Weights:
        """Return a random sort key for each weight above 0."""
        sort_keys = np.empty(len(self._weights))
        with np.errstate(over="ignore"):  # the sort key of a tiny weight may be infinite, so that the weight comes last
            for start in range(0, len(sort_keys), _CHUNK):
                chunk = slice(start, start + _CHUNK)
                draws = _exponentials(_random_bits(epoch_key, self._indices[chunk]))
                np.divide(draws, self._weights[chunk], out=sort_keys[chunk])
        return sort_keys


def _random_bits(key: int, positions: PositionTable) -> Array:
    """Return 64 random bits for each position.

    The generator is SplitMix64, which computes its number at any position without the earlier numbers.
    """
    numbers = positions.astype(np.uint64)
    numbers *= np.uint64(0x9E3779B97F4A7C15)
    numbers += np.uint64(key & (1 << 64) - 1)
    shifted = np.empty_like(numbers)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= np.right_shift(numbers, np.uint64(shift), out=shifted)
        numbers *= np.uint64(factor)
    numbers ^= np.right_shift(numbers, np.uint64(31), out=shifted)
    return numbers


def _low_halves(numbers: Array) -> Array:
    """Return a view of the lower 32 bits of each number of 64 bits."""
    return numbers.view(np.uint32)[_LOW_HALF::2]


def _exponentials(bits: Array) -> Weights:
    """Return exponentially distributed numbers, from 64 random bits each."""
    # Use 52 bits: with 53 bits, the largest number plus 0.5 would round up to 2**53, and the result would be 0.
    uniform = (bits >> np.uint64(12)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    return -_log(uniform)


def _log(numbers: Weights) -> Weights:
    """Return natural logarithms. `np.log` may differ in its last bit between machines."""
    mantissas, exponents = np.frexp(numbers)  # mantissas are from 0.5 to 1
    is_below = mantissas < np.sqrt(0.5)
    mantissas += mantissas * is_below  # doubles some mantissas exactly; several times faster than `mantissas[is_below]`
    ratios = (mantissas - 1.0) / (mantissas + 1.0)
    squares = ratios * ratios
    series = np.full_like(ratios, 1.0 / (2 * _LOG_TERMS - 1))
    for odd in range(2 * _LOG_TERMS - 3, 0, -2):
        series *= squares
        series += 1.0 / odd
    result: Weights = 2.0 * ratios * series + (exponents - is_below) * 0.6931471805599453
    return result
