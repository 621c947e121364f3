"""A source whose rows are in objects of a store: `from_files("s3://bucket/train/*.npy")`.

For each group, the source takes the prefetched byte ranges, or requests them if they were not prefetched. It copies the
rows from these ranges. The `RangeReader` reads a range from the store or from a cache tier.
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
from forebay.sources.objects.stored_object import StoredObject, combine_versions

__all__ = ["ObjectsSource"]

_BUFFER_NBYTES = 512 << 10  # bytes of the buffer for scattered rows; it fits in the cache of a CPU core
_LONG_ROW_NBYTES = 4096  # bytes; copying a row of this size or more directly is faster than through the buffer


class ObjectsSource(AbstractSource):
    """The rows of one or more objects, one object after the other."""

    # Forebay assumes that objects do not change. If the store reports versions, reading a changed object is an error.
    immutable = True
    can_prefetch = True

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
        self.version = combine_versions(objects)
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
            for planner, ranges, held_ranges in zip(self._planners, group.range_sets, group.held_ranges, strict=True):
                _copy_rows(planner.column, ranges, held_ranges, rows, [out[leaf] for leaf in planner.column.leaves])
        finally:
            group.release()

    def prefetch(self, upcoming: Iterator[Rows]) -> Prefetcher:
        # The prefetcher plans the groups of one window together. Two windows fit in the prefetch budget. A window has
        # at most as many rows as the source: collecting the groups of several short epochs would delay the first group.
        window_rows = max(1, min(self._length, self._prefetch_nbytes // 2 // max(1, self._row_nbytes)))
        prefetcher = Prefetcher(
            upcoming, self._plan_groups, self._reader, budget_nbytes=self._prefetch_nbytes, window_rows=window_rows
        )
        with self._lock:
            self._prefetchers = [*(other for other in self._prefetchers if not other.is_closed), prefetcher]
        return prefetcher

    @property
    def held_nbytes(self) -> int:
        """Bytes of the ranges that groups use, without those in cache tiers."""
        return self._reader.held_nbytes

    def counters(self) -> dict[str, int]:
        return self._reader.counters.counts()

    def decisions(self) -> list[Decision]:
        return self._reader.decisions()

    def close(self) -> None:
        """Stop prefetching, cancel queued requests and close the cache tiers."""
        with self._lock:
            prefetchers, self._prefetchers = self._prefetchers, []
        for prefetcher in prefetchers:
            prefetcher.close()
        self._finalizer()

    def _hold_group(self, rows: Rows) -> PrefetchedGroup:
        """Take the prefetched ranges of a group, or request the ranges now."""
        prefetchers = self._prefetchers  # including finished prefetchers, which may still hold groups
        group = take_prefetched(prefetchers, rows, self._reader) if prefetchers else None
        if group is not None and (isinstance(rows, slice) or all(ranges.covers(rows) for ranges in group.range_sets)):
            return group
        if group is not None:  # a different group with an equal key, which contains only some of the row numbers
            group.release()
        return PrefetchedGroup.hold(rows, next(self._plan_groups([rows])), self._reader)

    def _plan_groups(self, groups: Sequence[Rows]) -> Iterator[Sequence[RangeSet]]:
        """Yield the range sets of each group, one per column.

        The planner looks at all groups together to choose the blocks to read whole.
        """
        scattered = [rows for rows in groups if not isinstance(rows, slice) and len(rows)]
        all_rows = np.unique(np.concatenate(scattered)) if scattered else np.empty(0, np.intp)
        whole_blocks = [self._choose_whole_blocks(planner, all_rows) for planner in self._planners]
        for rows in groups:
            if isinstance(rows, slice):
                yield [planner.ranges_for_slice(rows.start, rows.stop) for planner in self._planners]
            else:
                sorted_rows, limit = np.sort(rows), self._prefetch_nbytes // 2
                planned = zip(self._planners, whole_blocks, strict=True)
                yield [planner.ranges_for_rows(sorted_rows, blocks, limit_nbytes=limit) for planner, blocks in planned]

    def _choose_whole_blocks(self, planner: RangePlanner, rows: Array) -> Array:
        """Return the sorted numbers of the planner's blocks to read whole.

        A block has up to 8 MiB of consecutive rows of a column. The result contains blocks that are cheaper to read
        whole, blocks that are held or cached, and blocks that the cache tiers can still store.
        """
        if not len(rows):
            return rows
        cheaper_blocks = planner.blocks_to_read_whole(rows, limit_nbytes=self._prefetch_nbytes // 2)
        other_blocks = np.setdiff1d(np.unique(planner.find_blocks(rows)), cheaper_blocks, assume_unique=True)
        is_local = np.asarray([self._reader.has(planner.block_range(block)) for block in other_blocks.tolist()], bool)
        # If a tier fails to store these blocks, they use the prefetch budget, so choose no more than fit in it. Later
        # windows cache more blocks.
        free_nbytes = min(self._reader.free_tier_nbytes, self._prefetch_nbytes)
        blocks_to_cache = other_blocks[~is_local]
        blocks_to_cache = blocks_to_cache[np.cumsum(planner.block_nbytes(blocks_to_cache)) <= free_nbytes]
        return np.sort(np.concatenate([cheaper_blocks, other_blocks[is_local], blocks_to_cache]))

    def _choose_shuffle_blocks(self, cache_nbytes: int) -> ShuffleBlocks | None:
        """Return the shuffle blocks, or None if rows can be read fast in any order.

        Shuffle blocks help if the rows fit neither in the caches nor in half of the prefetch budget, and a row is too
        short for a request of its own.
        """
        nbytes = self._length * self._row_nbytes
        if nbytes <= max(cache_nbytes, self._prefetch_nbytes // 2) or self._row_nbytes >= REQUEST_NBYTES:
            return None
        block_rows = min(planner.block_rows for planner in self._planners)
        return ShuffleBlocks(block_rows, max(4, self._prefetch_nbytes // max(1, block_rows * self._row_nbytes)))

    def _explain_reads(self, object_count: int) -> Decision:
        budget = format_nbytes(self._prefetch_nbytes)
        reason = f"{self._reader.connections} connections read {object_count} objects, and prefetch up to {budget}"
        if self.shuffle_blocks is not None:
            reason += (
                f"; a shuffle uses blocks of {self.shuffle_blocks.rows} rows unless shuffle() gets block=, because the "
                "caches cannot hold all rows"
            )
        return Decision("reads", "ranges", reason)


def _make_planners(objects: Sequence[StoredObject], layouts: Sequence[ObjectLayout]) -> list[RangePlanner]:
    row_counts = [layout.length for layout in layouts]
    columns = [
        RecordColumn(column.leaves, column.record, tuple(layout.columns[number].offset for layout in layouts))
        for number, column in enumerate(layouts[0].columns)
        if column.record.itemsize  # rows of zero bytes need no reads
    ]
    return [RangePlanner(column, objects, row_counts) for column in columns]


def _copy_rows(
    column: RecordColumn, ranges: RangeSet, held_ranges: Sequence[HeldRange], rows: Rows, targets: Sequence[Array]
) -> None:
    if isinstance(rows, slice):
        _copy_slice(column, ranges, held_ranges, rows, targets)
        return
    # Test the base dtype: NumPy reports a subarray dtype as native in any byte order.
    if column.record.itemsize >= _LONG_ROW_NBYTES and len(targets) == 1 and column.record.base.isnative:
        _copy_rows_directly(column, ranges, held_ranges, rows, targets[0])
        return
    step = max(1, _BUFFER_NBYTES // column.record.itemsize)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        _copy_scattered(column, ranges, held_ranges, rows[part], [target[part] for target in targets])


def _copy_slice(
    column: RecordColumn, ranges: RangeSet, held_ranges: Sequence[HeldRange], rows: slice, targets: Sequence[Array]
) -> None:
    for range_number, (first, stop) in enumerate(
        zip(ranges.first_rows.tolist(), ranges.stop_rows.tolist(), strict=True)
    ):
        low, high = max(first, rows.start), min(stop, rows.stop)
        records = np.ndarray(
            (stop - first,), column.record, held_ranges[range_number].array(), ranges.offsets[range_number]
        )
        for leaf, target in zip(column.fields(records), targets, strict=True):
            make_gather(leaf)(slice(low - first, high - first), target[low - rows.start : high - rows.start])


def _copy_rows_directly(
    column: RecordColumn, ranges: RangeSet, held_ranges: Sequence[HeldRange], rows: Array, target: Array
) -> None:
    nbytes = column.record.itemsize
    range_numbers = find_parts(rows, ranges.first_rows)
    starts = (rows - ranges.first_rows[range_numbers]) * nbytes + np.asarray(ranges.offsets)[range_numbers]
    sources, out = [held_range.array().data for held_range in held_ranges], target.reshape(-1).view(np.uint8).data
    for position, (range_number, start) in enumerate(zip(range_numbers.tolist(), starts.tolist(), strict=True)):
        out[position * nbytes : (position + 1) * nbytes] = sources[range_number][start : start + nbytes]


def _copy_scattered(
    column: RecordColumn, ranges: RangeSet, held_ranges: Sequence[HeldRange], rows: Array, targets: Sequence[Array]
) -> None:
    """Copy rows range by range to a buffer, then in order to the targets."""
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    bytes_dtype = np.dtype((np.void, column.record.itemsize))
    buffer = np.empty(len(rows), bytes_dtype)
    for range_number, part in split_runs(find_parts(sorted_rows, ranges.first_rows)):
        first, count = (
            ranges.first_rows[range_number],
            int(ranges.stop_rows[range_number] - ranges.first_rows[range_number]),
        )
        records = np.ndarray((count,), bytes_dtype, held_ranges[range_number].array(), ranges.offsets[range_number])
        # mode="clip" lets take() write to `out` directly; the default mode writes to a temporary array first.
        records.take(sorted_rows[part] - first, out=buffer[part], mode="clip")
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    records = np.ndarray((len(rows),), column.record, buffer)
    for leaf, target in zip(column.fields(records), targets, strict=True):
        make_gather(leaf)(positions, target)
