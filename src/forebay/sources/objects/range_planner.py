"""Which ranges to read for some rows: whole blocks where that is cheaper, else runs of rows. Pure.

Rows are numbered through all objects. A block is a run of rows of one object, some 8 MiB of them, or all of an object
that is no larger. Blocks never split a row, so a row lies in one range whatever is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.sources.objects.stored_object import Piece, StoredObject

__all__ = ["BLOCK_NBYTES", "REQUEST_NBYTES", "Column", "Cut", "Grid"]

BLOCK_NBYTES = 8 << 20
REQUEST_NBYTES = 1 << 20  # what could be read in the time a request takes to be answered: 5 to 20 ms at 100 MB/s


@dataclass(frozen=True, slots=True)
class Column:
    """Rows of some leaves as they lie in each object: row i of object n at `offsets[n] + i * record.itemsize`."""

    leaves: tuple[int, ...]
    record: np.dtype[Any]
    offsets: tuple[int, ...]

    def fields(self, records: Array) -> list[Array]:
        """The leaves in some records."""
        return [records[name] for name in records.dtype.names] if len(self.leaves) > 1 else [records]


@dataclass(frozen=True, slots=True)
class Cut:
    """Ranges of one column that hold all rows of a group: range i has rows `firsts[i]` to `stops[i]`."""

    firsts: Array
    stops: Array
    pieces: tuple[Piece, ...]
    offsets: tuple[int, ...]  # where the first row begins in each piece

    def covers(self, rows: Array) -> bool:
        """Whether rows all lie in its ranges."""
        places = np.searchsorted(self.firsts, rows, side="right") - 1
        return bool(places.min() >= 0 and (rows < self.stops[places]).all())


class Grid:
    """The blocks of one column over all objects."""

    def __init__(self, column: Column, objects: Sequence[StoredObject], rows: Sequence[int]) -> None:
        self.column = column
        self._objects = objects
        self._starts = np.cumsum([0, *rows])
        self._row_nbytes = column.record.itemsize
        self.block_rows = _block_rows(rows, self._row_nbytes)
        self._firsts = np.concatenate([self._blocks(number, count) for number, count in enumerate(rows)])
        self._stops = np.append(self._firsts[1:], self._starts[-1])
        self._laid: dict[int, tuple[Piece, int]] = {}  # of whole blocks

    def cut_run(self, first: int, stop: int) -> Cut:
        """The blocks that hold rows first to stop."""
        low, high = (int(np.searchsorted(self._firsts, row, side="right")) - 1 for row in (first, stop - 1))
        return self._whole(np.arange(low, high + 1))

    def cut(self, rows: Array, whole: Array, *, limit_nbytes: int) -> Cut:
        """Ranges for sorted rows; of the blocks whose numbers are in `whole`, sorted too, all is read.

        What is read beside the rows, in gaps between them, takes no more than the limit.
        """
        blocks = self.blocks_of(rows)
        in_whole = np.searchsorted(whole, blocks, side="right") > np.searchsorted(whole, blocks)
        kept = self._whole(_distinct(blocks[in_whole]))
        if in_whole.all():
            return kept
        return _merged(kept, self._cut(*self._runs(rows[~in_whole], limit_nbytes)))

    def blocks_of(self, rows: Array) -> Array:
        """The number of the block of each row."""
        return np.searchsorted(self._firsts, rows, side="right") - 1

    def nbytes_of(self, blocks: Array) -> Array:
        """The bytes of blocks."""
        sized: Array = (self._stops[blocks] - self._firsts[blocks]) * self._row_nbytes
        return sized

    def dense(self, rows: Array, *, limit_nbytes: int) -> Array:
        """The blocks that are read whole more cheaply than in runs, for sorted rows that are needed together.

        All of them are held at once, so where they would take more than the limit only those are read whole whose runs
        take as much; and where these take more than twice the limit, only those whose rows do.
        """
        blocks = self.blocks_of(rows)
        used = _distinct(blocks)
        firsts, stops = self._joined(rows, REQUEST_NBYTES)
        places = np.searchsorted(used, self.blocks_of(firsts))
        spans = np.bincount(places, (stops - firsts) * self._row_nbytes, len(used))
        requests = np.bincount(places, minlength=len(used)) * REQUEST_NBYTES
        nbytes = self.nbytes_of(used)
        # A little more is worth reading: others then find the whole block at hand.
        cheaper: Array = (spans + requests) * 4 >= nbytes * 3
        if int(nbytes[cheaper].sum()) > limit_nbytes:
            cheaper = spans * 4 >= nbytes * 3
        if int(nbytes[cheaper].sum()) > 2 * limit_nbytes:
            cheaper = (
                np.bincount(np.searchsorted(used, blocks), minlength=len(used)) * self._row_nbytes * 4 >= nbytes * 3
            )
        return used[cheaper]

    def piece(self, block: int) -> Piece:
        """The range of one block."""
        return self._block(block)[0]

    def _blocks(self, number: int, count: int) -> Array:
        start = int(self._starts[number])
        step = max(1, count) if self._objects[number].nbytes <= BLOCK_NBYTES else self.block_rows
        return np.arange(start, start + count, step)

    def _runs(self, rows: Array, limit_nbytes: int) -> tuple[Array, Array]:
        """Runs of rows of one block, with gaps in them that take no longer to read than to ask anew."""
        if not len(rows):
            return rows, rows
        firsts, stops = self._joined(rows, REQUEST_NBYTES)
        if int((stops - firsts).sum()) * self._row_nbytes <= limit_nbytes:
            return firsts, stops
        return self._joined(rows, min(REQUEST_NBYTES, limit_nbytes // len(rows)))

    def _joined(self, rows: Array, gap_nbytes: int) -> tuple[Array, Array]:
        """Runs of rows of one block with no longer gaps in them."""
        blocks = self.blocks_of(rows)
        gaps = (rows[1:] - rows[:-1] - 1) * self._row_nbytes
        seams = np.flatnonzero((gaps > gap_nbytes) | (blocks[1:] != blocks[:-1])) + 1
        return rows[np.append(0, seams)], rows[np.append(seams, len(rows)) - 1] + 1

    def _whole(self, blocks: Array) -> Cut:
        laid = [self._block(block) for block in blocks.tolist()]
        return _cut_of(self._firsts[blocks], self._stops[blocks], laid)

    def _block(self, block: int) -> tuple[Piece, int]:
        """All of one block, and where its first row begins there."""
        found = self._laid.get(block)
        if found is None:
            first, stop = int(self._firsts[block]), int(self._stops[block])
            found = self._laid[block] = self._lay(self._number(first), first, stop, kept=True)
        return found

    def _cut(self, firsts: Array, stops: Array) -> Cut:
        """Runs of rows."""
        runs = zip(firsts.tolist(), stops.tolist(), strict=True)
        return _cut_of(firsts, stops, [self._lay(self._number(first), first, stop, kept=False) for first, stop in runs])

    def _number(self, row: int) -> int:
        """Of the object that a row lies in."""
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _lay(self, number: int, first: int, stop: int, *, kept: bool) -> tuple[Piece, int]:
        """The bytes of some rows of an object; of a small object all, so that its checksum can be verified."""
        offset, start = self.column.offsets[number], int(self._starts[number])
        low, high = (offset + (row - start) * self._row_nbytes for row in (first, stop))
        if kept and self._objects[number].nbytes <= BLOCK_NBYTES:
            return Piece(number, 0, self._objects[number].nbytes, kept=True), low
        return Piece(number, low, high, kept=kept), 0


def _block_rows(rows: Sequence[int], row_nbytes: int) -> int:
    """Rows of a block; such that objects of equal length are whole blocks, so that a shuffle by blocks splits none."""
    most = max(1, BLOCK_NBYTES // max(1, row_nbytes))
    first = rows[0]
    if len(rows) == 1 or first <= most or any(count != first for count in rows[:-1]):
        return most
    shares = range(-(-first // most), 4 * -(-first // most) + 1)
    return next((first // share for share in shares if first % share == 0), most)


def _distinct(numbers: Array) -> Array:
    """Of sorted numbers, each once."""
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers


def _cut_of(firsts: Array, stops: Array, laid: Sequence[tuple[Piece, int]]) -> Cut:
    return Cut(firsts, stops, tuple(piece for piece, _ in laid), tuple(offset for _, offset in laid))


def _merged(one: Cut, two: Cut) -> Cut:
    firsts, stops = np.append(one.firsts, two.firsts), np.append(one.stops, two.stops)
    order = np.argsort(firsts)
    pieces, offsets = one.pieces + two.pieces, one.offsets + two.offsets
    return Cut(firsts[order], stops[order], tuple(pieces[i] for i in order), tuple(offsets[i] for i in order))
