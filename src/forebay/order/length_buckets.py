"""Batches of rows of similar length, for `batch(tokens=)`.

`LengthBuckets` groups positions into buckets: each bucket has the positions whose rows have similar lengths.
`BucketedBatches` cuts the buckets into batches and is the order of these batches.

The number of rows of a batch, times the length of the longest row of its bucket, is at most the budget (`tokens`). So
each batch fits, whichever rows of its bucket it contains, and every epoch has the same number of batches.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import split_range
from forebay.core.spec import Array
from forebay.order.choices import PositionTable, hash_array
from forebay.order.device_steps import DeviceSteps
from forebay.order.epoch_cache import CACHED_EPOCHS, EpochCache
from forebay.order.orders import BlockShuffled, Order, Sequential, Shuffled, WrappingOrder, require_length
from forebay.order.permutation import Permutation, Positions, derive_key

__all__ = ["BucketedBatches", "LengthBuckets", "can_bucket", "choose_bounds", "count_lengths"]

# The table of an epoch (as `LengthBuckets.table`), and the index of the batch at each position of `BucketedBatches`.
_Epoch: TypeAlias = tuple[PositionTable, Array]

# Parts of derived keys, so that a shuffle with the same seed has other keys.
_BUCKET_KEY = int.from_bytes(b"bucket", "big")
_BATCH_KEY = int.from_bytes(b"batches", "big")

# Largest ratio of the longest row to the shortest row of a bucket. It keeps the padding below 1 - 1 / 1.1 = 9 %.
MAX_GROWTH = 1.1
# Smallest number of full batches of a bucket. Each bucket also has an incomplete last batch, which is one more step for
# few rows. In a bucket with fewer full batches, this step would cost more time than the bucket saves in padding.
MIN_BUCKET_BATCHES = 8
_MAX_COUNTED_LENGTH = 1 << 22  # up to this length, one counter per length takes less time than a sort
_SEQUENCE_ARRAYS = 10  # arrays with 8 bytes per batch that `LengthBuckets.sequence` needs at a time
_STEP_ROWS = 1 << 16  # rows that each step processes; their arrays stay in the cache of a CPU core
# With at most this many rows, an exact shuffle computes a table in each epoch, which takes about 30 ns per row on one
# core. With more rows, it computes the rows of each batch without a table, which takes 0.2 ms more per batch.
MAX_TABLE_ROWS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class LengthBuckets:
    """The positions and the batches of each bucket.

    The buckets are in ascending order of the length of their rows.
    """

    tokens: int  # budget of a batch: its number of rows, times the length of its longest row
    # The positions of the first bucket, then those of the second bucket, and so on. Inside of a bucket, they ascend.
    table: PositionTable = field(repr=False)
    starts: tuple[int, ...]  # for each bucket, its first index in the table; then the length of the table
    batch_rows: tuple[int, ...]  # for each bucket, the number of rows of a full batch
    batch_starts: tuple[int, ...]  # for each bucket, the index of its first batch; then the number of batches
    padded_share: float  # upper bound of the share of padding in all elements of an epoch
    numbers_digest: str  # a hash of the bucket of each position

    @classmethod
    def of(
        cls, lengths: Array, tokens: int, *, bounds: Sequence[int] | None = None, drop_remainder: bool
    ) -> "LengthBuckets":
        """Return buckets of positions by the length of their rows.

        `bounds` has the largest length of each bucket; None means the result of `choose_bounds`. No length may exceed
        `tokens` or the largest bound. An empty row counts as one element.
        """
        present, rows = count_lengths(lengths)
        chosen = choose_bounds(present, rows, tokens) if bounds is None else np.asarray(bounds)
        # A bucket without rows gets no number.
        _, firsts, present_buckets = np.unique(np.searchsorted(chosen, present), return_index=True, return_inverse=True)
        counts = np.add.reduceat(rows, firsts)
        longest = present[np.append(firsts[1:], len(present)) - 1]
        starts = np.concatenate(([0], np.cumsum(counts)))
        numbers = _bucket_numbers(lengths, present, present_buckets)
        dtype: type[np.integer[Any]] = np.uint32 if len(lengths) <= 1 << 32 else np.int64
        table = np.empty(len(lengths), dtype)
        bucket_sort = _BucketSort(starts)
        for step in split_range(len(numbers), _STEP_ROWS):
            places, by_bucket = bucket_sort.place(numbers[step])
            table[places] = by_bucket + step.start
        batch_rows = tokens // longest
        batches = counts // batch_rows if drop_remainder else -(-counts // batch_rows)
        sizes = tuple(starts.tolist()), tuple(batch_rows.tolist()), tuple(accumulate(batches.tolist(), initial=0))
        padded_share = 1 - int((present * rows).sum()) / int((counts * longest).sum())
        return cls(tokens, table, *sizes, padded_share, hash_array(numbers))

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

    def digest(self) -> str:
        """Return a hash of the batches."""
        sizes = np.concatenate((self.starts, self.batch_rows, self.batch_starts))
        return self.numbers_digest + hash_array(sizes)

    def locate(self, batch: int) -> tuple[int, int, int]:
        """Return (bucket, start, stop): the rows of a batch, counted in its bucket."""
        bucket = bisect_right(self.batch_starts, batch) - 1
        rows = self.batch_rows[bucket]
        first = (batch - self.batch_starts[bucket]) * rows
        return bucket, first, min(first + rows, self.starts[bucket + 1] - self.starts[bucket])

    @property
    def number_dtype(self) -> np.dtype[Any]:
        """The dtype of bucket numbers."""
        return np.min_scalar_type(self.count - 1)

    def numbers(self) -> Array:
        """Return the bucket of each position."""
        numbers = np.empty(len(self.table), self.number_dtype)
        for bucket, (start, stop) in enumerate(pairwise(self.starts)):
            numbers[self.table[start:stop]] = bucket
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
    in the order in which a reader of these rows completes them.
    """

    inner: Order  # the fixed order of the rows, without the shuffle
    buckets: LengthBuckets = field(compare=False, repr=False)
    shuffle: Shuffled | BlockShuffled | None
    digest: str  # a hash of the buckets
    # The tables of epochs; None for an exact shuffle of more than `MAX_TABLE_ROWS` rows.
    epochs: EpochCache[_Epoch] | None = field(compare=False, repr=False)
    is_sequential: bool = False
    is_ascending: bool = False

    @classmethod
    def of(cls, order: Order, buckets: LengthBuckets) -> "BucketedBatches":
        """Return the order of batches for a fixed order or a shuffle of one."""
        shuffle = order if isinstance(order, Shuffled | BlockShuffled) else None
        is_computed = isinstance(order, Shuffled) and len(buckets.table) > MAX_TABLE_ROWS
        epochs = None if is_computed else EpochCache[_Epoch]()
        return cls(order if shuffle is None else shuffle.inner, buckets, shuffle, buckets.digest(), epochs)

    @property
    def length(self) -> int:
        return self.buckets.batches

    @property
    def is_fixed(self) -> bool:
        return self.shuffle is None

    @property
    def epoch_nbytes(self) -> int:
        if self.epochs is None:
            return 0
        sequence_nbytes = self.length * 8
        if self.shuffle is None:
            return sequence_nbytes * _SEQUENCE_ARRAYS
        cached_nbytes = CACHED_EPOCHS * (self.buckets.table.nbytes + sequence_nbytes)
        if isinstance(self.shuffle, Shuffled):
            return cached_nbytes
        row_nbytes = self.buckets.number_dtype.itemsize + self.buckets.table.itemsize
        return cached_nbytes + len(self.buckets.table) * row_nbytes + sequence_nbytes * _SEQUENCE_ARRAYS

    def positions(self, epoch: int, batch_position: int) -> Positions:
        """Return the positions of `inner` that the batch at this position contains."""
        buckets = self.buckets
        if self.epochs is None:
            assert isinstance(self.shuffle, Shuffled)
            return self._permuted_positions(self.shuffle.seed, epoch, batch_position)
        epoch = 0 if self.is_fixed else epoch
        table, sequence = self.epochs.find(epoch, lambda: _compute_epoch(buckets, self.shuffle, epoch))
        bucket, first, stop = buckets.locate(int(sequence[batch_position]))
        return table[buckets.starts[bucket] + first : buckets.starts[bucket] + stop].astype(np.int64)

    def _permuted_positions(self, seed: int, epoch: int, batch_position: int) -> Positions:
        """Return the positions of a batch of an exact shuffle, computed without a table."""
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

    `BucketedBatches` accepts no other orders.
    """
    inner = order.inner if isinstance(order, Shuffled | BlockShuffled) else order
    return inner is not None and inner.is_fixed


def count_lengths(lengths: Array) -> tuple[Array, Array]:
    """Return the lengths that occur, ascending, and the number of rows of each length.

    An empty row counts as one element.
    """
    if lengths.max() <= _MAX_COUNTED_LENGTH:
        all_counts = np.bincount(lengths, minlength=2)
        all_counts[1] += all_counts[0]
        present = np.flatnonzero(all_counts[1:]) + 1
        return present, all_counts[present]
    present, counts = np.unique(np.maximum(lengths, 1), return_counts=True)
    return present, counts


def choose_bounds(present: Array, counts: Array, tokens: int) -> Array:
    """Return the largest length of each bucket, ascending, for `counts[i]` rows of the length `present[i]`.

    The lengths of a bucket differ by a factor of less than `MAX_GROWTH`, unless the bucket would then have fewer than
    `MIN_BUCKET_BATCHES` full batches.
    """
    bounds, index = [], len(present) - 1
    while index >= 0:
        longest, rows = int(present[index]), 0
        needed_rows = MIN_BUCKET_BATCHES * (tokens // longest)
        while index >= 0 and (present[index] * MAX_GROWTH > longest or rows < needed_rows):
            rows += int(counts[index])
            index -= 1
        bounds.append(longest)
    return np.asarray(bounds[::-1], np.int64)


def _bucket_numbers(lengths: Array, present: Array, present_buckets: Array) -> Array:
    """Return the bucket of each position.

    Rows of the length `present[i]` are in the bucket `present_buckets[i]`.
    """
    numbers = np.empty(len(lengths), np.min_scalar_type(int(present_buckets[-1])))
    if present[-1] <= _MAX_COUNTED_LENGTH:  # a table of all lengths is several times faster than a search
        by_length = np.zeros(int(present[-1]) + 1, numbers.dtype)
        by_length[present] = present_buckets
        for step in split_range(len(lengths), _STEP_ROWS):
            # The default mode "raise" would write to a temporary array first.
            by_length.take(lengths[step], out=numbers[step], mode="clip")
        return numbers
    for step in split_range(len(lengths), _STEP_ROWS):
        numbers[step] = present_buckets[np.searchsorted(present, np.maximum(lengths[step], 1))]
    return numbers


class _BucketSort:
    """Sorts rows by bucket into a table, step by step.

    It is a counting sort, which needs no memory besides the table, and takes less time than a sort of all rows at once.
    `starts` has the first index of each bucket in the table, then the length of the table.
    """

    def __init__(self, starts: Array) -> None:
        self._following = starts[:-1].copy()  # for each bucket, the index in the table of its next row

    def place(self, numbers: Array) -> tuple[Array, Array]:
        """Return (indices of the table, rows to write there) for the next rows.

        `numbers[i]` is the bucket of row i of this step.
        """
        by_bucket = np.argsort(numbers, kind="stable")  # a fast radix sort, because the dtype of `numbers` is short
        counts = np.bincount(numbers, minlength=len(self._following))
        places = np.repeat(self._following - np.cumsum(counts) + counts, counts)
        places += np.arange(len(numbers))
        self._following += counts
        return places, by_bucket


@lru_cache(maxsize=4)  # enough for two epochs of two feeds
def _permute_batches(seed: int, epoch: int, length: int) -> Permutation:
    return Permutation(length, derive_key(seed, epoch, _BATCH_KEY))


@lru_cache(maxsize=256)  # enough for the buckets of two epochs
def _permute_bucket(seed: int, epoch: int, bucket: int, length: int) -> Permutation:
    return Permutation(length, derive_key(seed, epoch, _BUCKET_KEY, bucket))


def _compute_epoch(buckets: LengthBuckets, shuffle: Shuffled | BlockShuffled | None, epoch: int) -> _Epoch:
    if shuffle is None:
        return buckets.table, buckets.sequence(buckets.table)
    if isinstance(shuffle, Shuffled):
        return _shuffle_exactly(buckets, shuffle.seed, epoch)
    alone = replace(shuffle, inner=Sequential(require_length(shuffle.inner, "batch")))
    return _sort_blocks(buckets, alone, epoch)


def _shuffle_exactly(buckets: LengthBuckets, seed: int, epoch: int) -> _Epoch:
    table = np.empty_like(buckets.table)
    for bucket, (start, stop) in enumerate(pairwise(buckets.starts)):
        permute = _permute_bucket(seed, epoch, bucket, stop - start)
        for step in split_range(stop - start, _STEP_ROWS):
            chosen = permute(np.arange(step.start, step.stop))
            table[start + step.start : start + step.stop] = buckets.table[start + chosen]
    return table, _permute_batches(seed, epoch, buckets.batches)(np.arange(buckets.batches))


def _sort_blocks(buckets: LengthBuckets, shuffle: BlockShuffled, epoch: int) -> _Epoch:
    """Return the positions of a block shuffle by bucket, and the order of the batches.

    Batches come in the order in which a reader of the shuffle completes them.
    """
    table, found_at = np.empty_like(buckets.table), np.empty_like(buckets.table)
    numbers, bucket_sort = buckets.numbers(), _BucketSort(np.asarray(buckets.starts))
    for step in split_range(len(table), _STEP_ROWS):
        positions = shuffle.rows(epoch, np.arange(step.start, step.stop, dtype=np.int64))
        places, by_bucket = bucket_sort.place(numbers[positions])
        table[places] = positions[by_bucket]
        found_at[places] = by_bucket + step.start
    return table, buckets.sequence(found_at)
