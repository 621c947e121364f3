"""Background reads of the byte ranges that upcoming groups need."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from forebay.core.rows import Rows, row_count
from forebay.sources.lookahead import GroupItems, GroupKey, LookAhead, group_key
from forebay.sources.objects.range_planner import RangeSet
from forebay.sources.objects.range_reader import HeldRange, RangeReader
from forebay.sources.objects.stored_object import ByteRange

__all__ = ["PrefetchedGroup", "Prefetcher", "take_prefetched"]

# Seconds that a worker thread waits for a group before it reads the group itself. Without this limit, it would wait
# forever for a group that no prefetcher was told to read.
_WAIT_SECONDS = 1.0
# Maximum number of skipped groups to record. Groups that another feed of the source reads are recorded too, and never
# removed.
_MAX_SKIPPED = 1024


@dataclass(slots=True)
class PrefetchedGroup:
    """The byte ranges of one group, held in memory until `release`.

    `range_sets` and `held_ranges` have one entry per column.
    """

    row_count: int
    range_sets: Sequence[RangeSet]
    held_ranges: list[list[HeldRange]]
    reader: RangeReader

    @classmethod
    def hold(cls, rows: Rows, range_sets: Sequence[RangeSet], reader: RangeReader) -> "PrefetchedGroup":
        """Request and hold the ranges of a group."""
        return cls(row_count(rows), range_sets, [reader.hold(ranges.ranges) for ranges in range_sets], reader)

    def release(self) -> None:
        """Release the ranges."""
        self.reader.release(chain.from_iterable(self.held_ranges))
        self.held_ranges = []


def take_prefetched(prefetchers: Sequence["Prefetcher"], rows: Rows, reader: RangeReader) -> PrefetchedGroup | None:
    """Remove and return the prefetched group with the key of these rows, or return None.

    If no prefetcher holds the group, wait up to `_WAIT_SECONDS`. If no prefetcher holds it after that, mark the group
    as skipped, because the caller reads it. The returned group may be a different group with an equal key, so
    `ObjectsSource` verifies that the ranges cover all rows.
    """
    key = group_key(rows)
    with reader.changed:
        for prefetcher in prefetchers:
            prefetcher.change_waiters(key, 1)
        reader.changed.notify_all()
        reader.changed.wait_for(
            lambda: _find_holder(prefetchers, key) or all(prefetcher.is_finished for prefetcher in prefetchers),
            _WAIT_SECONDS,
        )
        for prefetcher in prefetchers:
            prefetcher.change_waiters(key, -1)
        holder = _find_holder(prefetchers, key)
        if holder is not None:
            return holder.pop(key)
        for prefetcher in prefetchers:
            prefetcher.skip(key)
        return None


def _find_holder(prefetchers: Sequence["Prefetcher"], key: GroupKey) -> "Prefetcher | None":
    return next((prefetcher for prefetcher in prefetchers if prefetcher.holds(key)), None)


class Prefetcher(LookAhead):
    """A thread that holds the byte ranges of upcoming groups within a memory budget.

    To hold a range means to request it, and to keep it in memory until it is released. The thread plans the ranges of
    several groups (a window) together, to decide which blocks to read whole. When a worker thread has gathered a group,
    it releases the ranges, and the prefetcher holds the next group.

    While the budget is used up, a worker thread may wait for the next group, or may stop waiting and read this group
    itself. Such a group is skipped. So the prefetcher counts the waiting threads and the skips of each group. It holds
    a group for which a thread waits even if this exceeds the budget. It never holds a skipped group.
    """

    def __init__(
        self,
        upcoming: Iterator[Rows],
        plan: Callable[[Sequence[Rows]], Iterator[Sequence[RangeSet]]],
        reader: RangeReader,
        *,
        budget_nbytes: int,
        window_rows: int,
    ) -> None:
        super().__init__(reader.changed)
        self._upcoming, self._plan, self._reader = upcoming, plan, reader
        self._budget_nbytes, self._window_rows = budget_nbytes, window_rows
        self._groups: GroupItems[PrefetchedGroup] = GroupItems()
        self._held_rows = 0  # number of rows in all held groups
        self._skipped: Counter[GroupKey] = Counter()
        self._waiters: Counter[GroupKey] = Counter()
        self._start_threads(1, "forebay-prefetch")

    def holds(self, key: GroupKey) -> bool:
        """Return whether this prefetcher holds the ranges of a group.

        The caller must hold the lock of `changed`, as for `change_waiters`, `skip` and `pop`.
        """
        return key in self._groups

    def change_waiters(self, key: GroupKey, change: int) -> None:
        """Record that a thread starts (1) or stops (-1) waiting for a group.

        The prefetcher holds a group for which a thread waits even if the group exceeds the budget.
        """
        self._waiters.update({key: change})
        self._waiters += Counter()  # removes zero counts

    def skip(self, key: GroupKey) -> None:
        """Let the prefetcher not hold a group, because a worker thread reads it itself."""
        if not self.is_finished and len(self._skipped) < _MAX_SKIPPED:
            self._skipped[key] += 1

    def pop(self, key: GroupKey) -> PrefetchedGroup:
        """Remove and return a held group. The caller must release it."""
        group = self._groups.pop(key)
        assert group is not None
        self._held_rows -= group.row_count
        self.changed.notify_all()
        return group

    def _drop_items(self) -> None:
        for group in self._groups.drain():
            group.release()

    def _prepare_groups(self) -> None:
        while not self.is_closed and self._prefetch_window():
            pass

    def _prefetch_window(self) -> bool:
        """Plan the groups of one window and hold their ranges.

        Return False if no group is left or the prefetcher is closed.
        """
        groups, count = list[Rows](), 0
        for rows in self._upcoming:
            groups.append(rows)
            count += row_count(rows)
            if count >= self._window_rows or self.is_closed:
                break
        for rows, range_sets in zip(groups, self._plan(groups), strict=True):
            if not self._admit_group(rows, range_sets):
                return False
        return bool(groups)

    def _admit_group(self, rows: Rows, range_sets: Sequence[RangeSet]) -> bool:
        """Wait until a group fits in the budget, then hold its ranges.

        Do not wait if a thread waits for the group, or if the group was skipped. Do not hold the ranges of a skipped
        group. Return False if the prefetcher is closed.
        """
        key = group_key(rows)
        fits = self._make_budget_check(
            row_count(rows), {byte_range for ranges in range_sets for byte_range in ranges.ranges}
        )
        hold = partial(self._hold_unless_skipped, key, rows, range_sets)
        return self._admit(lambda: self._needs_no_budget(key) or fits(), hold)

    def _hold_unless_skipped(self, key: GroupKey, rows: Rows, range_sets: Sequence[RangeSet]) -> None:
        if self._skipped[key] > 0:
            self._skipped -= Counter([key])
            return
        self._groups.add(key, PrefetchedGroup.hold(rows, range_sets, self._reader))
        self._held_rows += row_count(rows)

    def _needs_no_budget(self, key: GroupKey) -> bool:
        """Return whether a worker thread waits for a group or has skipped it."""
        return self._waiters[key] > 0 or self._skipped[key] > 0

    def _make_budget_check(self, new_rows: int, ranges: Collection[ByteRange]) -> Callable[[], bool]:
        """Return a function that checks whether a group fits in the budget.

        If no group and no range is held, every group fits, even a group that exceeds the whole budget.
        """
        reader, new_nbytes = self._reader, 0

        def fits() -> bool:
            nonlocal new_nbytes
            if not self._groups and reader.held_nbytes == 0:
                return True
            # Ranges in a cache tier use no budget, so limit the held rows as well, to two windows.
            if self._held_rows + new_rows > 2 * self._window_rows:
                return False
            # `fits` runs at every notification of `changed`. Test the sum of the previous call first, because computing
            # a new sum is slow.
            if reader.held_nbytes + new_nbytes > self._budget_nbytes:
                return False
            new_nbytes = sum(byte_range.nbytes for byte_range in ranges if not reader.has(byte_range))
            return new_nbytes == 0 or reader.held_nbytes + new_nbytes <= self._budget_nbytes

        return fits
