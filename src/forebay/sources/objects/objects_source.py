"""Rows of objects in a store, read in ranges: `from_files("s3://bucket/train/*.npy")` and its like.

A group's rows are found in the ranges that were read ahead for it, or these are read now; then rows are copied from
where they lie in them. Nothing here knows whether a range comes from the store, the disk or RAM.
"""

import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from forebay.core.decision import Reason
from forebay.core.source import Array, Blocks, Region, Rows, row_count
from forebay.core.spec import format_nbytes
from forebay.errors import SourceError
from forebay.sources.arrays import gather_leaf
from forebay.sources.objects.object_layout import Laid
from forebay.sources.objects.prefetch import Foreseen, Foresight, take
from forebay.sources.objects.range_planner import REQUEST_NBYTES, Column, Cut, Grid
from forebay.sources.objects.range_reader import Held, Reader
from forebay.sources.objects.stored_object import StoredObject, version_of_all

__all__ = ["ObjectsSource"]

_SCRATCH_NBYTES = 512 << 10  # rows from many ranges pass through a piece of this size, which a core's cache holds
_LONG_NBYTES = 4096  # a row of so many is copied by itself in less time than it takes to pass through there


class ObjectsSource:
    """The rows of many objects, one object after the other."""

    fixed = True  # an object that changes is an error

    def __init__(
        self,
        objects: Sequence[StoredObject],
        laid: Sequence[Laid],
        reader: Reader,
        *,
        ahead_nbytes: int,
        kept_nbytes: int,
    ) -> None:
        self.specs, self.structure = laid[0].specs, laid[0].structure
        self.version = version_of_all(objects)
        self._length = sum(one.length for one in laid)
        self._grids = _grids(objects, laid) if self._length else []
        self._reader, self._ahead_nbytes = reader, ahead_nbytes
        self._row_nbytes = sum(spec.nbytes for spec in self.specs)
        self._foresights: list[Foresight] = []
        self._lock = threading.Lock()
        self.blocks = self._shuffle_blocks(kept_nbytes)
        self.reads = self._told(len(objects))
        self._end = weakref.finalize(self, Reader.close, reader)

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if not self._end.alive:
            raise SourceError("these objects were closed: make the pipeline again to read from them.")
        if row_count(rows) == 0:
            return
        foreseen = self._take(rows)
        try:
            for grid, cut, held in zip(self._grids, foreseen.cuts, foreseen.held, strict=True):
                _copy_rows(grid.column, cut, held, rows, [out[leaf] for leaf in grid.column.leaves])
        finally:
            foreseen.release()

    def foresee(self, coming: Iterator[Rows]) -> Foresight:
        """Read the rows of coming groups ahead, until what is returned is closed."""
        # No further than an epoch: counting up many small ones would keep whoever waits for the first group waiting.
        window_rows = max(1, min(self._length, self._ahead_nbytes // 2 // max(1, self._row_nbytes)))
        foresight = Foresight(
            coming, self._cut_groups, self._reader, budget_nbytes=self._ahead_nbytes, window_rows=window_rows
        )
        with self._lock:
            self._foresights = [*(other for other in self._foresights if not other.closed), foresight]
        return foresight

    @property
    def held_nbytes(self) -> int:
        """Memory that ranges take now, outside tiers."""
        return self._reader.nbytes

    def memory(self) -> list[Region]:
        """Nothing: ranges come and go."""
        return []

    def counts(self) -> dict[str, int]:
        """What went over the wire so far, and what did not have to."""
        return self._reader.traffic.counts()

    def reasons(self) -> list[Reason]:
        """How reading went so far."""
        return self._reader.reasons()

    def close(self) -> None:
        """Let go of what is held, and end every thread."""
        with self._lock:
            foresights, self._foresights = self._foresights, []
        for foresight in foresights:
            foresight.close()
        self._end()

    def _take(self, rows: Rows) -> Foreseen:
        """A group's ranges: foreseen, or asked for now."""
        foresights = [foresight for foresight in self._foresights if not foresight.over]
        found = take(foresights, rows, self._reader) if foresights else None
        if found is not None and (isinstance(rows, slice) or all(cut.covers(rows) for cut in found.cuts)):
            return found
        if found is not None:
            found.release()
        return Foreseen.of(rows, next(self._cut_groups([rows])), self._reader)

    def _cut_groups(self, groups: Sequence[Rows]) -> Iterator[Sequence[Cut]]:
        """The ranges of groups that are needed one soon after the other."""
        scattered = [rows for rows in groups if not isinstance(rows, slice) and len(rows)]
        together = np.unique(np.concatenate(scattered)) if scattered else np.empty(0, np.intp)
        whole = [self._whole_blocks(grid, together) for grid in self._grids]
        for rows in groups:
            if isinstance(rows, slice):
                yield [grid.cut_run(rows.start, rows.stop) for grid in self._grids]
            else:
                ordered = np.sort(rows)
                limit = self._ahead_nbytes // 2
                chosen = zip(self._grids, whole, strict=True)
                yield [grid.cut(ordered, blocks, limit_nbytes=limit) for grid, blocks in chosen]

    def _whole_blocks(self, grid: Grid, rows: Array) -> Array:
        """Blocks to read whole, sorted: where that is cheaper, where they are at hand, and those a tier will keep."""
        if not len(rows):
            return rows
        dense = grid.dense(rows, limit_nbytes=self._ahead_nbytes // 2)
        rest = np.setdiff1d(np.unique(grid.blocks_of(rows)), dense, assume_unique=True)
        at_hand = np.asarray([self._reader.has(grid.piece(block)) for block in rest.tolist()], bool)
        # No more than may be held, should the tier fail: the others are read in parts now, and kept another time.
        room_nbytes = min(self._reader.room_nbytes, self._ahead_nbytes)
        kept = rest[~at_hand]
        return np.sort(np.concatenate([dense, rest[at_hand], kept[np.cumsum(grid.nbytes_of(kept)) <= room_nbytes]]))

    def _shuffle_blocks(self, kept_nbytes: int) -> Blocks | None:
        """How to shuffle what will be read over the wire in every epoch; nothing where rows may as well come alone."""
        nbytes = self._length * self._row_nbytes
        if nbytes <= max(kept_nbytes, self._ahead_nbytes // 2) or self._row_nbytes >= REQUEST_NBYTES:
            return None
        block_rows = min(grid.block_rows for grid in self._grids)
        return Blocks(block_rows, max(4, self._ahead_nbytes // max(1, block_rows * self._row_nbytes)))

    def _told(self, objects: int) -> Reason:
        ahead = format_nbytes(self._ahead_nbytes)
        told = f"of {objects} objects over {self._reader.connections} connections, up to {ahead} ahead of need"
        if self.blocks is not None:
            told += f"; shuffled by {self.blocks.rows} rows, as they are more than the tiers may hold"
        return Reason("reads", "ranges", told)


def _grids(objects: Sequence[StoredObject], laid: Sequence[Laid]) -> list[Grid]:
    rows = [one.length for one in laid]
    columns = [
        Column(column.leaves, column.record, tuple(one.columns[number].offset for one in laid))
        for number, column in enumerate(laid[0].columns)
        if column.record.itemsize  # rows without a byte in them are not read
    ]
    return [Grid(column, objects, rows) for column in columns]


def _copy_rows(column: Column, cut: Cut, held: Sequence[Held], rows: Rows, targets: Sequence[Array]) -> None:
    if isinstance(rows, slice):
        _copy_run(column, cut, held, rows, targets)
        return
    # Of the base: a dtype of whole rows calls itself native whatever its elements are.
    if column.record.itemsize >= _LONG_NBYTES and len(targets) == 1 and column.record.base.isnative:
        _copy_each(column, cut, held, rows, targets[0])
        return
    step = max(1, _SCRATCH_NBYTES // column.record.itemsize)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        _copy_scattered(column, cut, held, rows[part], [target[part] for target in targets])


def _copy_run(column: Column, cut: Cut, held: Sequence[Held], rows: slice, targets: Sequence[Array]) -> None:
    for place, (first, stop) in enumerate(zip(cut.firsts.tolist(), cut.stops.tolist(), strict=True)):
        low, high = max(first, rows.start), min(stop, rows.stop)
        records = np.ndarray((stop - first,), column.record, held[place].array(), cut.offsets[place])
        for leaf, target in zip(column.fields(records), targets, strict=True):
            gather_leaf(leaf)(slice(low - first, high - first), target[low - rows.start : high - rows.start])


def _copy_each(column: Column, cut: Cut, held: Sequence[Held], rows: Array, target: Array) -> None:
    nbytes = column.record.itemsize
    places = np.searchsorted(cut.firsts, rows, side="right") - 1
    starts = (rows - cut.firsts[places]) * nbytes + np.asarray(cut.offsets)[places]
    sources, into = [one.array().data for one in held], target.reshape(-1).view(np.uint8).data
    for number, (place, start) in enumerate(zip(places.tolist(), starts.tolist(), strict=True)):
        into[number * nbytes : (number + 1) * nbytes] = sources[place][start : start + nbytes]


def _copy_scattered(column: Column, cut: Cut, held: Sequence[Held], rows: Array, targets: Sequence[Array]) -> None:
    """Each range is visited once; its rows land side by side, and then all go to their places at once."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    places = np.searchsorted(cut.firsts, ordered, side="right") - 1
    seams = np.flatnonzero(places[1:] != places[:-1]) + 1
    opaque = np.dtype((np.void, column.record.itemsize))
    scratch = np.empty(len(rows), opaque)
    for start, stop in pairwise([0, *seams.tolist(), len(rows)]):
        place = int(places[start])
        first, count = cut.firsts[place], int(cut.stops[place] - cut.firsts[place])
        block = np.ndarray((count,), opaque, held[place].array(), cut.offsets[place])
        # Without "clip", take writes into a buffer of its own first.
        block.take(ordered[start:stop] - first, out=scratch[start:stop], mode="clip")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    records = np.ndarray((len(rows),), column.record, scratch)
    for leaf, target in zip(column.fields(records), targets, strict=True):
        gather_leaf(leaf)(back, target)
