"""Choice of the byte ranges that contain given rows: whole blocks, or runs of rows.

A run is one range with one or more rows and the gaps between them. Reading a whole block may be cheaper than reading
its runs. This module only computes; `range_reader.py` reads.

Row numbers continue across all objects. A block contains consecutive rows of one column in one object: at most 8 MiB,
but at least one row. No block splits a row. In an object of at most 8 MiB, each column is a single block, and the range
of that block is the whole object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import find_parts
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["BLOCK_NBYTES", "REQUEST_NBYTES", "RangePlanner", "RangeSet", "RecordColumn"]

BLOCK_NBYTES = 8 << 20  # bytes; the largest block, unless a single row is longer
# Bytes that take as long to read, at 100 MB/s, as one more request with an assumed latency of 5 to 20 ms.
REQUEST_NBYTES = 1 << 20
_MAX_BLOCKS = 1 << 24  # of one column; a table of block starts has 8 bytes for each, and 16 Mi blocks hold 128 TiB


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One column of all objects: records with one or more leaves.

    Row `i` of object `n` begins at byte `offsets[n] + i * record.itemsize` of that object.
    """

    leaves: tuple[int, ...]  # numbers of the leaves that a record contains
    record: np.dtype[Any]
    offsets: tuple[int, ...]

    def fields(self, records: Array) -> list[Array]:
        """Return one array per leaf of the records."""
        return [records[name] for name in records.dtype.names] if len(self.leaves) > 1 else [records]


@dataclass(frozen=True, slots=True)
class RangeSet:
    """Byte ranges of one column that contain all rows of a group.

    Range `i` contains the rows from `first_rows[i]` to `stop_rows[i]` (exclusive). Row `first_rows[i]` begins at byte
    `offsets[i]` of the range.
    """

    first_rows: Array
    stop_rows: Array
    ranges: tuple[ByteRange, ...]
    offsets: tuple[int, ...]

    def covers(self, rows: Array) -> bool:
        """Return whether the ranges contain all rows in `rows`."""
        if len(self.first_rows) == 0 or rows.min() < self.first_rows[0]:
            return False
        return bool((rows < self.stop_rows[find_parts(rows, self.first_rows)]).all())


class RangePlanner:
    """Divides one column of all objects into blocks and plans the ranges to read."""

    def __init__(self, column: RecordColumn, objects: Sequence[StoredObject], row_counts: Sequence[int]) -> None:
        self.column = column
        self._objects = objects
        self._object_starts = np.cumsum([0, *row_counts])
        self._row_nbytes = column.record.itemsize
        self.block_rows = _choose_block_rows(row_counts, self._row_nbytes)
        self._validate_block_count(row_counts)
        self._block_starts = np.concatenate(
            [self._find_block_starts(number, count) for number, count in enumerate(row_counts)]
        )
        self._block_stops = np.append(self._block_starts[1:], self._object_starts[-1])
        self._block_ranges: dict[int, tuple[ByteRange, int]] = {}

    def ranges_for_slice(self, first: int, stop: int) -> RangeSet:
        """Return the ranges of the blocks that contain the rows from `first` to `stop` (exclusive)."""
        low, high = (int(np.searchsorted(self._block_starts, row, side="right")) - 1 for row in (first, stop - 1))
        return self._ranges_of_blocks(np.arange(low, high + 1))

    def ranges_for_rows(self, rows: Array, whole_blocks: Array, *, limit_nbytes: int) -> RangeSet:
        """Return ranges that contain sorted rows.

        Each block in `whole_blocks` (sorted) becomes one range. In all other blocks, runs of rows become ranges. A run
        bridges gaps of up to `REQUEST_NBYTES`. If all runs together exceed `limit_nbytes`, runs bridge only smaller
        gaps.
        """
        blocks = self.find_blocks(rows)
        is_in_whole_block = np.searchsorted(whole_blocks, blocks, side="right") > np.searchsorted(whole_blocks, blocks)
        block_ranges = self._ranges_of_blocks(_drop_duplicates(blocks[is_in_whole_block]))
        if is_in_whole_block.all():
            return block_ranges
        firsts, stops = self._join_rows_within_limit(rows[~is_in_whole_block], limit_nbytes)
        return _merge_range_sets(block_ranges, self._ranges_of_runs(firsts, stops))

    def find_blocks(self, rows: Array) -> Array:
        """Return the block number of each row."""
        return find_parts(rows, self._block_starts)

    def block_nbytes(self, blocks: Array) -> Array:
        """Return the bytes of the rows of each block.

        The range of a block may be longer: for a small object, it is the whole object.
        """
        nbytes: Array = (self._block_stops[blocks] - self._block_starts[blocks]) * self._row_nbytes
        return nbytes

    def blocks_to_read_whole(self, rows: Array, *, limit_nbytes: int) -> Array:
        """Return the sorted numbers of blocks that are cheaper to read whole than in runs.

        `rows` are the sorted rows of one window. Memory holds all chosen blocks at the same time, so the condition for
        a block becomes stricter if the chosen blocks are too large:

        1. The runs, plus `REQUEST_NBYTES` for each, are at least 3/4 of the block.
        2. If the blocks of condition 1 exceed the limit: the runs, including their gaps, are at least 3/4 of the block.
        3. If the blocks of condition 2 exceed twice the limit: the needed rows are at least 3/4 of the block.
        """
        blocks = self.find_blocks(rows)
        used_blocks = _drop_duplicates(blocks)
        firsts, stops = self._join_rows(rows, REQUEST_NBYTES)
        block_of_run = np.searchsorted(used_blocks, self.find_blocks(firsts))
        run_nbytes = np.bincount(block_of_run, (stops - firsts) * self._row_nbytes, len(used_blocks))
        request_nbytes = np.bincount(block_of_run, minlength=len(used_blocks)) * REQUEST_NBYTES
        nbytes = self.block_nbytes(used_blocks)
        # 3/4 is enough, because later groups may use the block while it is in memory.
        is_cheaper: Array = (run_nbytes + request_nbytes) * 4 >= nbytes * 3
        if int(nbytes[is_cheaper].sum()) > limit_nbytes:
            is_cheaper = run_nbytes * 4 >= nbytes * 3
        if int(nbytes[is_cheaper].sum()) > 2 * limit_nbytes:
            rows_in_block = np.bincount(np.searchsorted(used_blocks, blocks), minlength=len(used_blocks))
            is_cheaper = rows_in_block * self._row_nbytes * 4 >= nbytes * 3
        return used_blocks[is_cheaper]

    def block_range(self, block: int) -> ByteRange:
        """Return the byte range of a whole block."""
        return self._range_of_block(block)[0]

    def _validate_block_count(self, row_counts: Sequence[int]) -> None:
        """Raise SourceError for lengths that no real object has, which would need a huge table."""
        block_count = sum(-(-count // self.block_rows) for count in row_counts)
        if block_count > _MAX_BLOCKS:
            largest = max(self._objects, key=lambda stored_object: stored_object.nbytes)
            raise SourceError(
                f"the objects have {sum(row_counts)} rows in {block_count} blocks, but Forebay reads at most "
                f"{_MAX_BLOCKS} blocks. The largest is {largest.url} with {largest.nbytes} bytes. Check whether the "
                "server reports the correct length, or pass fewer objects."
            )

    def _find_block_starts(self, number: int, count: int) -> Array:
        start = int(self._object_starts[number])
        step = max(1, count) if self._objects[number].nbytes <= BLOCK_NBYTES else self.block_rows
        return np.arange(start, start + count, step)

    def _join_rows_within_limit(self, rows: Array, limit_nbytes: int) -> tuple[Array, Array]:
        """Join sorted rows to runs. Return the first and stop row of each run.

        A run bridges gaps up to `REQUEST_NBYTES`, because reading a gap is faster than another request. If the runs
        exceed the limit, they bridge only smaller gaps.
        """
        if not len(rows):
            return rows, rows
        firsts, stops = self._join_rows(rows, REQUEST_NBYTES)
        if int((stops - firsts).sum()) * self._row_nbytes <= limit_nbytes:
            return firsts, stops
        return self._join_rows(rows, min(REQUEST_NBYTES, limit_nbytes // len(rows)))

    def _join_rows(self, rows: Array, gap_nbytes: int) -> tuple[Array, Array]:
        """Join sorted rows to runs that bridge gaps up to `gap_nbytes`.

        A run never continues in the next block, so `merge_intervals` cannot be used.
        """
        blocks = self.find_blocks(rows)
        gaps = (rows[1:] - rows[:-1] - 1) * self._row_nbytes
        boundaries = np.flatnonzero((gaps > gap_nbytes) | (blocks[1:] != blocks[:-1])) + 1
        return rows[np.append(0, boundaries)], rows[np.append(boundaries, len(rows)) - 1] + 1

    def _ranges_of_blocks(self, blocks: Array) -> RangeSet:
        ranges = [self._range_of_block(block) for block in blocks.tolist()]
        return _make_range_set(self._block_starts[blocks], self._block_stops[blocks], ranges)

    def _range_of_block(self, block: int) -> tuple[ByteRange, int]:
        """Return the byte range of a block, and the offset of its first row."""
        range_and_offset = self._block_ranges.get(block)
        if range_and_offset is None:
            first, stop = int(self._block_starts[block]), int(self._block_stops[block])
            range_and_offset = self._block_ranges[block] = self._byte_range(first, stop, is_block=True)
        return range_and_offset

    def _ranges_of_runs(self, firsts: Array, stops: Array) -> RangeSet:
        runs = zip(firsts.tolist(), stops.tolist(), strict=True)
        return _make_range_set(firsts, stops, [self._byte_range(first, stop, is_block=False) for first, stop in runs])

    def _byte_range(self, first: int, stop: int, *, is_block: bool) -> tuple[ByteRange, int]:
        """Return the byte range of rows, and the offset of the first row in it.

        The block of a small object is the whole object, so that its MD5 can be verified.
        """
        number = int(np.searchsorted(self._object_starts, first, side="right")) - 1
        offset, start = self.column.offsets[number], int(self._object_starts[number])
        low, high = (offset + (row - start) * self._row_nbytes for row in (first, stop))
        if is_block and self._objects[number].nbytes <= BLOCK_NBYTES:
            return ByteRange(number, 0, self._objects[number].nbytes, cacheable=True), low
        return ByteRange(number, low, high, cacheable=is_block), 0


def _choose_block_rows(row_counts: Sequence[int], row_nbytes: int) -> int:
    """Return the number of rows in a block.

    If all objects but the last have the same number of rows, choose a divisor of that number where possible. The blocks
    of a block shuffle, which have equal lengths, are then whole blocks of objects.
    """
    max_rows = max(1, BLOCK_NBYTES // max(1, row_nbytes))
    first = row_counts[0]
    if len(row_counts) == 1 or first <= max_rows or any(count != first for count in row_counts[:-1]):
        return max_rows
    min_blocks = -(-first // max_rows)  # rounded up
    block_counts = range(min_blocks, 4 * min_blocks + 1)  # a block is at least about a quarter of BLOCK_NBYTES
    return next((first // count for count in block_counts if first % count == 0), max_rows)


def _drop_duplicates(numbers: Array) -> Array:
    """Return sorted numbers without duplicates."""
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers


def _make_range_set(firsts: Array, stops: Array, ranges: Sequence[tuple[ByteRange, int]]) -> RangeSet:
    return RangeSet(firsts, stops, tuple(byte_range for byte_range, _ in ranges), tuple(offset for _, offset in ranges))


def _merge_range_sets(left: RangeSet, right: RangeSet) -> RangeSet:
    firsts, stops = np.append(left.first_rows, right.first_rows), np.append(left.stop_rows, right.stop_rows)
    order = np.argsort(firsts)
    ranges, offsets = left.ranges + right.ranges, left.offsets + right.offsets
    return RangeSet(firsts[order], stops[order], tuple(ranges[i] for i in order), tuple(offsets[i] for i in order))
