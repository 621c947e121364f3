"""Batches of rows of similar length, for `batch(tokens=)`.

`LengthBuckets` groups positions into buckets: each bucket has the positions whose rows have similar lengths.
`BucketedBatches` cuts the buckets into batches and is the order of these batches.

The number of rows of a batch, times the length of the longest row of its bucket, is at most the budget (`tokens`). So
each batch fits, whichever rows of the bucket it contains, and every epoch has the same number of batches.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.order.choices import PositionTable, hash_array
from forebay.order.device_steps import DeviceSteps
from forebay.order.orders import BlockShuffled, Order, Sequential, Shuffled, WrappingOrder, require_length
from forebay.order.permutation import Permutation, Positions, derive_key

__all__ = ["BucketedBatches", "LengthBuckets", "can_bucket", "choose_bounds"]

# In derived keys, so that a shuffle with the same seed has other keys.
_BUCKET_KEY = int.from_bytes(b"bucket", "big")
_BATCH_KEY = int.from_bytes(b"batches", "big")

# Longest row of a bucket divided by its shortest row, at most. So the padding stays below 1 - 1 / 1.1 = 9 %.
MAX_GROWTH = 1.1
# Smallest number of full batches of a bucket. Each bucket also has an incomplete last batch. In a bucket with fewer
# full batches, this batch would cost more than the bucket saves in padding.
MIN_BUCKET_BATCHES = 8
_MAX_COUNTED_LENGTH = 1 << 22  # up to this length, one counter per length takes less time than a sort
_CACHED_EPOCHS = 2  # of a shuffle: the current epoch and the next one
# Rows up to which an exact shuffle computes the table of each epoch, which takes about 30 ns per row on one core.
# Without a table, each batch takes 0.2 ms more.
MAX_TABLE_ROWS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class LengthBuckets:
    """The positions and the batches of each bucket.

    Buckets are sorted by the length of their rows.
    """

    tokens: int  # budget of a batch: its number of rows, times the length of its longest row
    # The positions of the first bucket, then of the second, and so on. Inside of a bucket, they ascend.
    table: PositionTable = field(repr=False)
    starts: tuple[int, ...]  # for each bucket, its first index in the table; then the length of the table
    batch_rows: tuple[int, ...]  # for each bucket, the rows of a full batch
    batch_starts: tuple[int, ...]  # for each bucket, the index of its first batch; then the number of batches
    padded_share: float  # upper bound of the share of padding in all elements of an epoch

    @classmethod
    def of(
        cls, lengths: Array, tokens: int, *, bounds: Sequence[int] | None = None, drop_remainder: bool
    ) -> "LengthBuckets":
        """Group positions into buckets by the length of their rows.

        `bounds` has the largest length of each bucket; None means `choose_bounds`. No length may exceed `tokens` or the
        largest bound. An empty row counts as one element.
        """
        lengths = np.maximum(lengths, 1)
        numbers = np.searchsorted(choose_bounds(lengths, tokens) if bounds is None else np.asarray(bounds), lengths)
        numbers = numbers.astype(np.min_scalar_type(int(numbers.max())))  # NumPy sorts short integers by their digits
        dtype: type[np.integer[Any]] = np.uint32 if len(numbers) <= 1 << 32 else np.int64
        table = np.argsort(numbers, kind="stable").astype(dtype)
        counts = np.bincount(numbers)
        counts = counts[counts > 0].astype(np.int64)
        starts = np.concatenate(([0], np.cumsum(counts)))
        longest = np.maximum.reduceat(lengths[table], starts[:-1])
        batch_rows = tokens // longest
        batches = counts // batch_rows if drop_remainder else -(-counts // batch_rows)
        padded_share = 1 - int(lengths.sum()) / int((counts * longest).sum())
        batch_starts = accumulate(batches.tolist(), initial=0)
        return cls(tokens, table, tuple(starts.tolist()), tuple(batch_rows.tolist()), tuple(batch_starts), padded_share)

    @property
    def batches(self) -> int:
        """Number of batches of an epoch."""
        return self.batch_starts[-1]

    @property
    def count(self) -> int:
        """Number of buckets."""
        return len(self.batch_rows)

    @property
    def max_batch_rows(self) -> int:
        """Rows of the batch with the most rows."""
        return int(np.minimum(self.batch_rows, np.diff(self.starts)).max())

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    def digest(self) -> str:
        """Return a hash of the batches."""
        sizes = np.concatenate((self.starts, self.batch_rows, self.batch_starts))
        return hash_array(self.table) + hash_array(sizes)

    def locate(self, batch: int) -> tuple[int, int, int]:
        """Return the bucket of a batch, and the range of its rows in this bucket."""
        bucket = bisect_right(self.batch_starts, batch) - 1
        rows = self.batch_rows[bucket]
        first = (batch - self.batch_starts[bucket]) * rows
        return bucket, first, min(first + rows, self.starts[bucket + 1] - self.starts[bucket])

    def numbers(self) -> Array:
        """Return the bucket of each position."""
        numbers = np.empty(len(self.table), np.min_scalar_type(self.count))
        numbers[self.table] = np.repeat(np.arange(self.count), np.diff(self.starts))
        return numbers

    def sequence(self, found_at: Array) -> Array:
        """Return the batches in the order in which a reader of all rows completes them.

        `found_at[i]` is the position at which the reader finds the row at index `i` of the table. Incomplete batches
        come last.
        """
        buckets = np.repeat(np.arange(self.count), np.diff(self.batch_starts))
        starts, sizes = np.asarray(self.starts[:-1])[buckets], np.diff(self.starts)[buckets]
        numbers_in_bucket = np.arange(self.batches) - np.asarray(self.batch_starts[:-1])[buckets]
        stops = (numbers_in_bucket + 1) * np.asarray(self.batch_rows)[buckets]
        completed_at = found_at[starts + np.minimum(stops, sizes) - 1].astype(np.int64)
        return np.argsort(np.where(stops <= sizes, completed_at, completed_at + len(found_at)), kind="stable")


@dataclass(frozen=True, slots=True)
class BucketedBatches(WrappingOrder):
    """The order of batches: each position is a batch.

    `rows` returns the rows of all batches at the given positions. With an exact shuffle, each epoch permutes the rows
    of each bucket, and the batches. With a block shuffle, the rows stay in the order of the shuffle, and batches come
    in the order in which they become complete.
    """

    inner: Order  # the order without the shuffle, which is fixed
    buckets: LengthBuckets = field(compare=False, repr=False)
    shuffle: Shuffled | BlockShuffled | None
    digest: str  # a hash of the buckets
    epochs: "_EpochTables | None" = field(compare=False, repr=False)  # None if an exact shuffle has too many rows
    is_sequential: bool = False
    is_ascending: bool = False

    @classmethod
    def of(cls, order: Order, buckets: LengthBuckets) -> "BucketedBatches":
        """Build the order of batches of a fixed order, or of a shuffle of it."""
        shuffle = order if isinstance(order, Shuffled | BlockShuffled) else None
        is_computed = isinstance(order, Shuffled) and len(buckets.table) > MAX_TABLE_ROWS
        tables = None if is_computed else _EpochTables(buckets, shuffle)
        return cls(order if shuffle is None else shuffle.inner, buckets, shuffle, buckets.digest(), tables)

    @property
    def length(self) -> int:
        return self.buckets.batches

    @property
    def is_fixed(self) -> bool:
        return self.shuffle is None

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of the order, including those of two epochs of a shuffle."""
        has_epochs = self.shuffle is not None and self.epochs is not None
        return self.buckets.nbytes * (1 + _CACHED_EPOCHS if has_epochs else 1)

    def positions(self, epoch: int, batch_position: int) -> Positions:
        """Return the positions of the inner order that the batch at this position contains."""
        buckets = self.buckets
        if self.epochs is None:
            assert isinstance(self.shuffle, Shuffled)
            return self._permuted_positions(self.shuffle.seed, epoch, batch_position)
        table, sequence = self.epochs.find(0 if self.is_fixed else epoch)
        bucket, first, stop = buckets.locate(int(sequence[batch_position]))
        return table[buckets.starts[bucket] + first : buckets.starts[bucket] + stop].astype(np.int64)

    def _permuted_positions(self, seed: int, epoch: int, batch_position: int) -> Positions:
        """Compute the positions of a batch of an exact shuffle without a table."""
        batch = _permute_batches(seed, epoch, self.length)(np.array([batch_position]))
        bucket, first, stop = self.buckets.locate(int(batch[0]))
        start, end = self.buckets.starts[bucket : bucket + 2]
        chosen = _permute_bucket(seed, epoch, bucket, end - start)(np.arange(first, stop))
        return self.buckets.table[start + chosen].astype(np.int64)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        found = [self.positions(epoch, position) for position in positions.tolist()]
        return self.inner.rows(epoch, np.concatenate(found))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return None

    def describe(self) -> tuple[Any, ...]:
        order = self.inner if self.shuffle is None else self.shuffle
        return ("length buckets", self.buckets.tokens, self.buckets.batches, self.digest, *order.describe())


def can_bucket(order: Order) -> bool:
    """Return whether an order is fixed or a shuffle of a fixed order.

    `BucketedBatches` accepts only such orders.
    """
    inner = order.inner if isinstance(order, Shuffled | BlockShuffled) else order
    return inner is not None and inner.is_fixed


def choose_bounds(lengths: Array, tokens: int) -> Array:
    """Return the largest length of each bucket, ascending.

    The lengths of a bucket differ by a factor of less than `MAX_GROWTH`, unless the bucket would then have fewer than
    `MIN_BUCKET_BATCHES` full batches.
    """
    if lengths.max() <= _MAX_COUNTED_LENGTH:
        all_counts = np.bincount(lengths)
        present = np.flatnonzero(all_counts)
        counts = all_counts[present]
    else:
        present, counts = np.unique(lengths, return_counts=True)
    bounds, index = [], len(present) - 1
    while index >= 0:
        longest, rows = int(present[index]), 0
        needed_rows = MIN_BUCKET_BATCHES * (tokens // longest)
        while index >= 0 and (present[index] * MAX_GROWTH > longest or rows < needed_rows):
            rows += int(counts[index])
            index -= 1
        bounds.append(longest)
    return np.asarray(bounds[::-1], np.int64)


@lru_cache(maxsize=4)  # two epochs of two feeds
def _permute_batches(seed: int, epoch: int, length: int) -> Permutation:
    return Permutation(length, derive_key(seed, epoch, _BATCH_KEY))


@lru_cache(maxsize=256)  # the buckets of two epochs
def _permute_bucket(seed: int, epoch: int, bucket: int, length: int) -> Permutation:
    return Permutation(length, derive_key(seed, epoch, _BUCKET_KEY, bucket))


class _EpochTables:
    """The tables of the epochs that were used last."""

    def __init__(self, buckets: LengthBuckets, shuffle: Shuffled | BlockShuffled | None) -> None:
        self._buckets, self._shuffle = buckets, shuffle
        self._epochs: OrderedDict[int, tuple[PositionTable, Array]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, epoch: int) -> tuple[PositionTable, Array]:
        """Return two tables of an epoch.

        The first has the inner positions by bucket; in a bucket, they are in the order in which its batches contain
        them. The second has the batch at each position.
        """
        found = self._epochs.get(epoch)
        if found is not None:
            return found
        with self._lock:
            found = self._epochs.get(epoch)
            if found is None:
                found = self._epochs[epoch] = self._compute(epoch)
                while len(self._epochs) > _CACHED_EPOCHS:
                    self._epochs.popitem(last=False)
            return found

    def _compute(self, epoch: int) -> tuple[PositionTable, Array]:
        buckets, shuffle = self._buckets, self._shuffle
        if shuffle is None:
            return buckets.table, buckets.sequence(buckets.table)
        if isinstance(shuffle, Shuffled):
            return self._permute(shuffle.seed, epoch)
        length = require_length(shuffle.inner, "batch")
        positions = replace(shuffle, inner=Sequential(length)).rows(epoch, np.arange(length, dtype=np.int64))
        by_bucket = np.argsort(buckets.numbers()[positions], kind="stable")
        return positions[by_bucket].astype(buckets.table.dtype), buckets.sequence(by_bucket)

    def _permute(self, seed: int, epoch: int) -> tuple[PositionTable, Array]:
        """Return the tables of an exact shuffle."""
        buckets, table = self._buckets, np.empty_like(self._buckets.table)
        for bucket, (start, stop) in enumerate(pairwise(buckets.starts)):
            chosen = _permute_bucket(seed, epoch, bucket, stop - start)(np.arange(stop - start))
            table[start:stop] = buckets.table[start + chosen]
        return table, _permute_batches(seed, epoch, buckets.batches)(np.arange(buckets.batches))

    def __reduce__(self) -> tuple[Any, ...]:
        return _EpochTables, (self._buckets, self._shuffle)  # a lock cannot be pickled
