"""Choice of byte ranges for rows: whole blocks, or runs of rows.

A whole block is read if that is cheaper. This module only computes; `range_reader.py` reads.

Rows are numbered across all objects. A block is a run of rows of one object: about 8 MiB, or a whole object that is not
larger. Blocks never split a row, so one range always contains a whole row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import find_parts
from forebay.core.spec import Array
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["BLOCK_NBYTES", "REQUEST_NBYTES", "RangePlanner", "RangeSet", "RecordColumn"]

BLOCK_NBYTES = 8 << 20
REQUEST_NBYTES = 1 << 20  # bytes; the cost of one more request: a latency of 5 to 20 ms, at 100 MB/s


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """Records of one or more leaves in all objects.

    Row `i` of object `n` begins at byte `offsets[n] + i * record.itemsize`.
    """

    leaves: tuple[int, ...]
    record: np.dtype[Any]
    offsets: tuple[int, ...]

    def fields(self, records: Array) -> list[Array]:
        """Return the leaves of some records."""
        return [records[name] for name in records.dtype.names] if len(self.leaves) > 1 else [records]


@dataclass(frozen=True, slots=True)
class RangeSet:
    """Byte ranges of one column that contain all rows of a group.

    Range `i` contains the rows `first_rows[i]` to `stop_rows[i]`, and the first of them begins at `offsets[i]`.
    """

    first_rows: Array
    stop_rows: Array
    ranges: tuple[ByteRange, ...]
    offsets: tuple[int, ...]

    def covers(self, rows: Array) -> bool:
        """Return whether the ranges contain all these rows."""
        which = find_parts(rows, self.first_rows)
        return bool(which.min() >= 0 and (rows < self.stop_rows[which]).all())


class RangePlanner:
    """Divides one column of all objects into blocks, and plans the ranges to read."""

    def __init__(self, column: RecordColumn, objects: Sequence[StoredObject], rows: Sequence[int]) -> None:
        """Make the blocks. `rows` has the number of rows of each object."""
        self.column = column
        self._objects = objects
        self._object_starts = np.cumsum([0, *rows])
        self._row_nbytes = column.record.itemsize
        self.block_rows = _choose_block_rows(rows, self._row_nbytes)
        self._block_starts = np.concatenate([self._block_starts_of(number, count) for number, count in enumerate(rows)])
        self._block_stops = np.append(self._block_starts[1:], self._object_starts[-1])
        self._block_ranges: dict[int, tuple[ByteRange, int]] = {}

    def ranges_for_slice(self, first: int, stop: int) -> RangeSet:
        """Return the blocks that contain the rows `first` to `stop`."""
        low, high = (int(np.searchsorted(self._block_starts, row, side="right")) - 1 for row in (first, stop - 1))
        return self._whole_blocks(np.arange(low, high + 1))

    def ranges_for_rows(self, rows: Array, whole_blocks: Array, *, limit_nbytes: int) -> RangeSet:
        """Return ranges for sorted rows.

        The blocks in `whole_blocks` (sorted) are read completely.

        Ranges may include gaps between rows: at most `limit_nbytes` in total.
        """
        blocks = self.blocks_of(rows)
        in_whole = np.searchsorted(whole_blocks, blocks, side="right") > np.searchsorted(whole_blocks, blocks)
        whole = self._whole_blocks(_distinct(blocks[in_whole]))
        if in_whole.all():
            return whole
        return _merge_sets(whole, self._row_runs(*self._join_rows_within(rows[~in_whole], limit_nbytes)))

    def blocks_of(self, rows: Array) -> Array:
        """Return the block of each row."""
        return find_parts(rows, self._block_starts)

    def block_nbytes(self, blocks: Array) -> Array:
        """Return the size of each block."""
        nbytes: Array = (self._block_stops[blocks] - self._block_starts[blocks]) * self._row_nbytes
        return nbytes

    def blocks_to_read_whole(self, rows: Array, *, limit_nbytes: int) -> Array:
        """Return the blocks that are cheaper to read whole than in runs.

        The rows are sorted and needed at about the same time.

        All these blocks are held at the same time, so the choice becomes stricter if they exceed the limit:

        1. Runs plus the cost of their requests take at least 3/4 of the block.
        2. Above the limit: runs alone, with their gaps, take at least 3/4 of the block.
        3. Above twice the limit: the needed rows alone take at least 3/4 of the block.
        """
        blocks = self.blocks_of(rows)
        used = _distinct(blocks)
        firsts, stops = self._join_rows(rows, REQUEST_NBYTES)
        which = np.searchsorted(used, self.blocks_of(firsts))
        run_nbytes = np.bincount(which, (stops - firsts) * self._row_nbytes, len(used))
        request_nbytes = np.bincount(which, minlength=len(used)) * REQUEST_NBYTES
        nbytes = self.block_nbytes(used)
        # 3/4 is enough, because later groups may also use the block while it is in memory.
        is_cheaper: Array = (run_nbytes + request_nbytes) * 4 >= nbytes * 3
        if int(nbytes[is_cheaper].sum()) > limit_nbytes:
            is_cheaper = run_nbytes * 4 >= nbytes * 3
        if int(nbytes[is_cheaper].sum()) > 2 * limit_nbytes:
            rows_in_block = np.bincount(np.searchsorted(used, blocks), minlength=len(used))
            is_cheaper = rows_in_block * self._row_nbytes * 4 >= nbytes * 3
        return used[is_cheaper]

    def block_range(self, block: int) -> ByteRange:
        """Return the byte range of a whole block."""
        return self._whole_block(block)[0]

    def _block_starts_of(self, number: int, count: int) -> Array:
        start = int(self._object_starts[number])
        step = max(1, count) if self._objects[number].nbytes <= BLOCK_NBYTES else self.block_rows
        return np.arange(start, start + count, step)

    def _join_rows_within(self, rows: Array, limit_nbytes: int) -> tuple[Array, Array]:
        """Join rows to runs, with smaller gaps if the runs exceed the limit.

        A run includes a gap if reading it is faster than another request.
        """
        if not len(rows):
            return rows, rows
        firsts, stops = self._join_rows(rows, REQUEST_NBYTES)
        if int((stops - firsts).sum()) * self._row_nbytes <= limit_nbytes:
            return firsts, stops
        return self._join_rows(rows, min(REQUEST_NBYTES, limit_nbytes // len(rows)))

    def _join_rows(self, rows: Array, gap_nbytes: int) -> tuple[Array, Array]:
        """Join sorted, distinct rows to runs across gaps up to `gap_nbytes`.

        This does not use `merge_intervals`: the rows are sorted and do not overlap, and a run ends with its block.
        """
        blocks = self.blocks_of(rows)
        gaps = (rows[1:] - rows[:-1] - 1) * self._row_nbytes
        boundaries = np.flatnonzero((gaps > gap_nbytes) | (blocks[1:] != blocks[:-1])) + 1
        return rows[np.append(0, boundaries)], rows[np.append(boundaries, len(rows)) - 1] + 1

    def _whole_blocks(self, blocks: Array) -> RangeSet:
        found = [self._whole_block(block) for block in blocks.tolist()]
        return _range_set(self._block_starts[blocks], self._block_stops[blocks], found)

    def _whole_block(self, block: int) -> tuple[ByteRange, int]:
        """Return the range of a block, and its first row's offset there."""
        found = self._block_ranges.get(block)
        if found is None:
            first, stop = int(self._block_starts[block]), int(self._block_stops[block])
            found = self._block_ranges[block] = self._byte_range(first, stop, is_block=True)
        return found

    def _row_runs(self, firsts: Array, stops: Array) -> RangeSet:
        runs = zip(firsts.tolist(), stops.tolist(), strict=True)
        return _range_set(firsts, stops, [self._byte_range(first, stop, is_block=False) for first, stop in runs])

    def _byte_range(self, first: int, stop: int, *, is_block: bool) -> tuple[ByteRange, int]:
        """Return the byte range of rows, and the first row's offset in it.

        A small object is read completely, so that its checksum can be verified.
        """
        number = int(np.searchsorted(self._object_starts, first, side="right")) - 1
        offset, start = self.column.offsets[number], int(self._object_starts[number])
        low, high = (offset + (row - start) * self._row_nbytes for row in (first, stop))
        if is_block and self._objects[number].nbytes <= BLOCK_NBYTES:
            return ByteRange(number, 0, self._objects[number].nbytes, cacheable=True), low
        return ByteRange(number, low, high, cacheable=is_block), 0


def _choose_block_rows(rows: Sequence[int], row_nbytes: int) -> int:
    """Return the number of rows in a block.

    If objects have the same length, blocks divide it evenly. Then a block shuffle splits no block.
    """
    max_rows = max(1, BLOCK_NBYTES // max(1, row_nbytes))
    first = rows[0]
    if len(rows) == 1 or first <= max_rows or any(count != first for count in rows[:-1]):
        return max_rows
    divisors = range(-(-first // max_rows), 4 * -(-first // max_rows) + 1)
    return next((first // divisor for divisor in divisors if first % divisor == 0), max_rows)


def _distinct(numbers: Array) -> Array:
    """Remove duplicates of sorted numbers."""
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers


def _range_set(firsts: Array, stops: Array, found: Sequence[tuple[ByteRange, int]]) -> RangeSet:
    return RangeSet(firsts, stops, tuple(found_range for found_range, _ in found), tuple(offset for _, offset in found))


def _merge_sets(one: RangeSet, two: RangeSet) -> RangeSet:
    firsts, stops = np.append(one.first_rows, two.first_rows), np.append(one.stop_rows, two.stop_rows)
    order = np.argsort(firsts)
    ranges, offsets = one.ranges + two.ranges, one.offsets + two.offsets
    return RangeSet(firsts[order], stops[order], tuple(ranges[i] for i in order), tuple(offsets[i] for i in order))
