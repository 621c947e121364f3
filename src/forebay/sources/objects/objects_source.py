"""A source of rows in objects of a store, read in byte ranges: `from_files("s3://bucket/train/*.npy")`.

The source takes the prefetched ranges of a group, or reads them now, and copies the rows from them. It does not know
whether a range comes from the store, the disk or RAM.
"""

import threading
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.rows import Rows, find_parts, row_count, split_runs
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, format_nbytes
from forebay.errors import SourceError
from forebay.sources.arrays import make_gather
from forebay.sources.objects.object_layout import ObjectLayout
from forebay.sources.objects.prefetch import PrefetchedGroup, Prefetcher, take_prefetched
from forebay.sources.objects.range_planner import REQUEST_NBYTES, RangePlanner, RangeSet, RecordColumn
from forebay.sources.objects.range_reader import HeldRange, RangeReader
from forebay.sources.objects.stored_object import StoredObject, combined_version

__all__ = ["ObjectsSource"]

_SCRATCH_NBYTES = 512 << 10  # bytes; scattered rows are first collected in a buffer that fits in the cache of a core
_LONG_ROW_NBYTES = 4096  # bytes; copying such a row directly is faster than through the buffer


class ObjectsSource(AbstractSource):
    """The rows of many objects, one object after the other."""

    immutable = True  # a changed object raises an error

    def __init__(
        self,
        objects: Sequence[StoredObject],
        layouts: Sequence[ObjectLayout],
        reader: RangeReader,
        *,
        prefetch_nbytes: int,
        cache_nbytes: int,  # budget of all cache tiers
    ) -> None:
        self.specs, self.structure = layouts[0].specs, layouts[0].structure
        self.version = combined_version(objects)
        self._length = sum(layout.length for layout in layouts)
        self._planners = _make_planners(objects, layouts) if self._length else []
        self._reader, self._prefetch_nbytes = reader, prefetch_nbytes
        self._row_nbytes = sum(spec.nbytes for spec in self.specs)
        self._prefetchers: list[Prefetcher] = []
        self._lock = threading.Lock()
        self.shuffle_blocks = self._choose_shuffle_blocks(cache_nbytes)
        self.read_decision = self._explain_reads(len(objects))
        self._finalizer = weakref.finalize(self, RangeReader.close, reader)

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if not self._finalizer.alive:
            raise SourceError("the source was closed. Create the pipeline again to read from it.")
        if row_count(rows) == 0:
            return
        group = self._hold_group(rows)
        try:
            for planner, ranges, held in zip(self._planners, group.range_sets, group.held, strict=True):
                _copy_rows(planner.column, ranges, held, rows, [out[leaf] for leaf in planner.column.leaves])
        finally:
            group.release()

    def prefetch(self, upcoming: Iterator[Rows]) -> Prefetcher:
        # A window spans at most one epoch: collecting many short epochs would delay the first group.
        window_rows = max(1, min(self._length, self._prefetch_nbytes // 2 // max(1, self._row_nbytes)))
        prefetcher = Prefetcher(
            upcoming, self._plan_groups, self._reader, budget_nbytes=self._prefetch_nbytes, window_rows=window_rows
        )
        with self._lock:
            self._prefetchers = [*(other for other in self._prefetchers if not other.is_closed), prefetcher]
        return prefetcher

    @property
    def held_nbytes(self) -> int:
        """Memory of ranges outside the cache tiers."""
        return self._reader.held_nbytes

    def counters(self) -> dict[str, int]:
        return self._reader.counters.counts()

    def decisions(self) -> list[Decision]:
        return self._reader.decisions()

    def close(self) -> None:
        """Release all ranges and end every thread."""
        with self._lock:
            prefetchers, self._prefetchers = self._prefetchers, []
        for prefetcher in prefetchers:
            prefetcher.close()
        self._finalizer()

    def _hold_group(self, rows: Rows) -> PrefetchedGroup:
        """Return the prefetched ranges of a group, or request them now."""
        prefetchers = [prefetcher for prefetcher in self._prefetchers if not prefetcher.is_finished]
        found = take_prefetched(prefetchers, rows, self._reader) if prefetchers else None
        if found is not None and (isinstance(rows, slice) or all(ranges.covers(rows) for ranges in found.range_sets)):
            return found
        if found is not None:
            found.release()
        return PrefetchedGroup.hold(rows, next(self._plan_groups([rows])), self._reader)

    def _plan_groups(self, groups: Sequence[Rows]) -> Iterator[Sequence[RangeSet]]:
        """Plan the ranges of groups that are needed soon after each other."""
        scattered = [rows for rows in groups if not isinstance(rows, slice) and len(rows)]
        all_rows = np.unique(np.concatenate(scattered)) if scattered else np.empty(0, np.intp)
        whole_blocks = [self._choose_whole_blocks(planner, all_rows) for planner in self._planners]
        for rows in groups:
            if isinstance(rows, slice):
                yield [planner.ranges_for_slice(rows.start, rows.stop) for planner in self._planners]
            else:
                ordered, limit = np.sort(rows), self._prefetch_nbytes // 2
                planned = zip(self._planners, whole_blocks, strict=True)
                yield [planner.ranges_for_rows(ordered, blocks, limit_nbytes=limit) for planner, blocks in planned]

    def _choose_whole_blocks(self, planner: RangePlanner, rows: Array) -> Array:
        """Return the sorted numbers of the blocks to read whole.

        These are blocks that are cheaper to read whole, blocks in memory, and blocks that a tier will cache.
        """
        if not len(rows):
            return rows
        cheaper = planner.blocks_to_read_whole(rows, limit_nbytes=self._prefetch_nbytes // 2)
        others = np.setdiff1d(np.unique(planner.blocks_of(rows)), cheaper, assume_unique=True)
        is_local = np.asarray([self._reader.has(planner.block_range(block)) for block in others.tolist()], bool)
        # If the tier fails, these blocks take prefetch memory. A later window caches the blocks that exceed it.
        free_nbytes = min(self._reader.free_tier_nbytes, self._prefetch_nbytes)
        to_cache = others[~is_local]
        to_cache = to_cache[np.cumsum(planner.block_nbytes(to_cache)) <= free_nbytes]
        return np.sort(np.concatenate([cheaper, others[is_local], to_cache]))

    def _choose_shuffle_blocks(self, cache_nbytes: int) -> ShuffleBlocks | None:
        """Return the shuffle blocks, or None if any order is fast.

        Blocks help if every epoch reads from the store and reads of single rows would be slow.
        """
        nbytes = self._length * self._row_nbytes
        if nbytes <= max(cache_nbytes, self._prefetch_nbytes // 2) or self._row_nbytes >= REQUEST_NBYTES:
            return None
        block_rows = min(planner.block_rows for planner in self._planners)
        return ShuffleBlocks(block_rows, max(4, self._prefetch_nbytes // max(1, block_rows * self._row_nbytes)))

    def _explain_reads(self, objects: int) -> Decision:
        budget = format_nbytes(self._prefetch_nbytes)
        why = f"of {objects} objects over {self._reader.connections} connections, up to {budget} prefetched"
        if self.shuffle_blocks is not None:
            why += f"; shuffled by {self.shuffle_blocks.rows} rows, because the caches cannot hold all rows"
        return Decision("reads", "ranges", why)


def _make_planners(objects: Sequence[StoredObject], layouts: Sequence[ObjectLayout]) -> list[RangePlanner]:
    rows = [layout.length for layout in layouts]
    columns = [
        RecordColumn(column.leaves, column.record, tuple(layout.columns[number].offset for layout in layouts))
        for number, column in enumerate(layouts[0].columns)
        if column.record.itemsize  # rows of zero bytes need no reads
    ]
    return [RangePlanner(column, objects, rows) for column in columns]


def _copy_rows(
    column: RecordColumn, ranges: RangeSet, held: Sequence[HeldRange], rows: Rows, targets: Sequence[Array]
) -> None:
    if isinstance(rows, slice):
        _copy_slice(column, ranges, held, rows, targets)
        return
    # Look at the base: NumPy reports a subarray dtype as native in any byte order.
    if column.record.itemsize >= _LONG_ROW_NBYTES and len(targets) == 1 and column.record.base.isnative:
        _copy_each(column, ranges, held, rows, targets[0])
        return
    step = max(1, _SCRATCH_NBYTES // column.record.itemsize)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        _copy_scattered(column, ranges, held, rows[part], [target[part] for target in targets])


def _copy_slice(
    column: RecordColumn, ranges: RangeSet, held: Sequence[HeldRange], rows: slice, targets: Sequence[Array]
) -> None:
    for which, (first, stop) in enumerate(zip(ranges.first_rows.tolist(), ranges.stop_rows.tolist(), strict=True)):
        low, high = max(first, rows.start), min(stop, rows.stop)
        records = np.ndarray((stop - first,), column.record, held[which].array(), ranges.offsets[which])
        for leaf, target in zip(column.fields(records), targets, strict=True):
            make_gather(leaf)(slice(low - first, high - first), target[low - rows.start : high - rows.start])


def _copy_each(column: RecordColumn, ranges: RangeSet, held: Sequence[HeldRange], rows: Array, target: Array) -> None:
    nbytes = column.record.itemsize
    owners = find_parts(rows, ranges.first_rows)
    starts = (rows - ranges.first_rows[owners]) * nbytes + np.asarray(ranges.offsets)[owners]
    sources, out = [one.array().data for one in held], target.reshape(-1).view(np.uint8).data
    for position, (owner, start) in enumerate(zip(owners.tolist(), starts.tolist(), strict=True)):
        out[position * nbytes : (position + 1) * nbytes] = sources[owner][start : start + nbytes]


def _copy_scattered(
    column: RecordColumn, ranges: RangeSet, held: Sequence[HeldRange], rows: Array, targets: Sequence[Array]
) -> None:
    """Copy rows range by range to a buffer, then to their positions."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    opaque = np.dtype((np.void, column.record.itemsize))
    scratch = np.empty(len(rows), opaque)
    for owner, part in split_runs(find_parts(ordered, ranges.first_rows)):
        first, count = ranges.first_rows[owner], int(ranges.stop_rows[owner] - ranges.first_rows[owner])
        records = np.ndarray((count,), opaque, held[owner].array(), ranges.offsets[owner])
        # mode="clip" lets take() write to `out` directly; the default mode writes to a temporary array first.
        records.take(ordered[part] - first, out=scratch[part], mode="clip")
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    records = np.ndarray((len(rows),), column.record, scratch)
    for leaf, target in zip(column.fields(records), targets, strict=True):
        make_gather(leaf)(positions, target)
