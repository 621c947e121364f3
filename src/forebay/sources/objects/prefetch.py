"""Background reads of the byte ranges that upcoming groups need."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeAlias

from forebay.core.rows import Rows, row_count
from forebay.sources.lookahead import GroupItems, LookAhead
from forebay.sources.objects.range_planner import RangeSet
from forebay.sources.objects.range_reader import HeldRange, RangeReader
from forebay.sources.objects.stored_object import ByteRange

__all__ = ["PrefetchedGroup", "Prefetcher", "take_prefetched"]

GroupKey: TypeAlias = tuple[int, ...]  # identifies a group by some of its row numbers

_WAIT_SECONDS = 1.0  # how long to wait for a prefetcher; it never prepares rows outside its schedule
_MAX_SKIPPED = 1024  # keys; groups of other feeds are recorded too, and no prefetcher would ever remove them


@dataclass(slots=True)
class PrefetchedGroup:
    """The byte ranges of one group, held in memory until `release`.

    `range_sets` and `held` have one entry per column.
    """

    rows: int
    range_sets: Sequence[RangeSet]
    held: list[list[HeldRange]]
    reader: RangeReader

    @classmethod
    def hold(cls, rows: Rows, range_sets: Sequence[RangeSet], reader: RangeReader) -> "PrefetchedGroup":
        """Hold the ranges of a group."""
        return cls(row_count(rows), range_sets, [reader.hold(ranges.ranges) for ranges in range_sets], reader)

    def release(self) -> None:
        """Release the ranges."""
        self.reader.release(chain.from_iterable(self.held))
        self.held = []


def take_prefetched(prefetchers: Sequence["Prefetcher"], rows: Rows, reader: RangeReader) -> PrefetchedGroup | None:
    """Return the prefetched group for these rows, or None.

    Wait up to `_WAIT_SECONDS` for a prefetcher that has not reached the group.
    """
    key = _group_key(rows)
    with reader.changed:
        for prefetcher in prefetchers:
            prefetcher.add_waiter(key, 1)
        reader.changed.notify_all()
        reader.changed.wait_for(
            lambda: _holder(prefetchers, key) or all(one.is_finished for one in prefetchers), _WAIT_SECONDS
        )
        for prefetcher in prefetchers:
            prefetcher.add_waiter(key, -1)
        holder = _holder(prefetchers, key)
        if holder is not None:
            return holder.pop(key)
        for prefetcher in prefetchers:
            prefetcher.skip(key)
        return None


def _holder(prefetchers: Sequence["Prefetcher"], key: GroupKey) -> "Prefetcher | None":
    return next((prefetcher for prefetcher in prefetchers if prefetcher.holds(key)), None)


class Prefetcher(LookAhead):
    """A thread that holds the byte ranges of upcoming groups within a memory budget.

    It plans the ranges of several groups (a window) together, to decide which blocks to read whole. A group that was
    gathered releases its ranges, and the thread holds the next group. A group that the prefetcher has not reached is
    read when it is gathered.

    Unlike the other look-aheads, it counts waiters and skipped groups. Otherwise its thread could wait for room while
    another thread waits for the very next group, or has already read that group itself.
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
        self._rows = 0  # of all held groups
        self._skipped: Counter[GroupKey] = Counter()
        self._waiters: Counter[GroupKey] = Counter()
        self._start_threads(1, "forebay-prefetch")

    def holds(self, key: GroupKey) -> bool:
        """Return whether this prefetcher holds the ranges of a group.

        The caller holds the lock, here and in `add_waiter`, `skip` and `pop`.
        """
        return key in self._groups

    def add_waiter(self, key: GroupKey, change: int) -> None:
        """Record that a thread starts (1) or stops (-1) to wait for a group.

        The prefetcher reads a group with a waiter even if it exceeds the budget.
        """
        self._waiters.update({key: change})
        self._waiters += Counter()  # removes zero counts

    def skip(self, key: GroupKey) -> None:
        """Do not prefetch a group that the gathering thread reads itself."""
        if not self.is_finished and len(self._skipped) < _MAX_SKIPPED:
            self._skipped[key] += 1

    def pop(self, key: GroupKey) -> PrefetchedGroup:
        """Return a held group. The caller must release it."""
        found = self._groups.pop(key)
        assert found is not None
        self._rows -= found.rows
        self.changed.notify_all()
        return found

    def _drop_items(self) -> None:
        for group in self._groups.drain():
            group.release()

    def _prepare_groups(self) -> None:
        while not self.is_closed and self._prefetch_window():
            pass

    def _prefetch_window(self) -> bool:
        """Plan and hold several groups. Return False at the end."""
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
        """Wait until the ranges of a group fit, then hold them.

        Return False if the prefetcher is closed.
        """
        key = _group_key(rows)
        fits = self._make_fits(row_count(rows), {one for ranges in range_sets for one in ranges.ranges})
        hold = partial(self._hold_unless_skipped, key, rows, range_sets)
        return self._admit(lambda: self._is_urgent(key) or fits(), hold)

    def _hold_unless_skipped(self, key: GroupKey, rows: Rows, range_sets: Sequence[RangeSet]) -> None:
        if self._skipped[key] > 0:
            self._skipped -= Counter([key])
            return
        self._groups.add(key, PrefetchedGroup.hold(rows, range_sets, self._reader))
        self._rows += row_count(rows)

    def _is_urgent(self, key: GroupKey) -> bool:
        """Return whether a consumer waits for a group or has read it itself."""
        return self._waiters[key] > 0 or self._skipped[key] > 0

    def _make_fits(self, count: int, ranges: Collection[ByteRange]) -> Callable[[], bool]:
        """Return a function that tells whether a group fits in the budget.

        A group that exceeds the whole budget fits when no other group is held.
        """
        reader, new_nbytes = self._reader, 0

        def fits() -> bool:
            nonlocal new_nbytes
            if not self._groups and reader.held_nbytes == 0:
                return True
            if self._rows + count > 2 * self._window_rows:  # cached ranges use no budget, so rows are limited too
                return False
            # This runs at every notification. Check the sum of the previous call first, because a new sum is slow.
            if reader.held_nbytes + new_nbytes > self._budget_nbytes:
                return False
            new_nbytes = sum(one.nbytes for one in ranges if not reader.has(one))
            return new_nbytes == 0 or reader.held_nbytes + new_nbytes <= self._budget_nbytes

        return fits


def _group_key(rows: Rows) -> GroupKey:
    """Return a short key of a group: its length and some rows.

    Keys of two groups may collide, so the source checks that a group contains all its rows.
    """
    if isinstance(rows, slice):
        return rows.start, rows.stop
    step = max(1, len(rows) // 8)
    return len(rows), int(rows[-1]), *rows[::step].tolist()
