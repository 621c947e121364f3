"""The look-ahead: a base class for code that prepares upcoming groups within a budget."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from forebay.core.rows import Rows
from forebay.errors import SourceError

__all__ = ["GroupItems", "GroupKey", "LookAhead", "ReadStoppedError", "group_key"]

GroupKey: TypeAlias = tuple[int, ...]  # made by `group_key`; several groups may have the same key
Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class ReadStoppedError(SourceError):
    """Raised in a thread that waits for a group when the look-ahead is closed."""

    def __init__(self) -> None:
        super().__init__(
            "the feed was closed, or a newer iteration over it began, while this iteration waited for rows. Use the "
            "newest iterator."
        )


class LookAhead:
    """Prepares upcoming groups before threads gather their rows.

    A subclass defines how to prepare a group, for example how to read or decompress its rows, and how many groups fit
    in its budget. Each subclass works in one of two ways:

    - Background threads prepare groups. `_start_threads` starts these threads. They run `_prepare_groups`, and wait in
      `_admit` until the next group fits in the budget. The last thread that ends drops the iterator `_upcoming`.
    - The threads that gather rows also prepare groups, so no background thread is needed. They call `_wait_for` and
      `_release`, which call `_advance`. `_advance` starts to prepare the groups that fit in the budget, for example by
      submitting reads. It never waits.

    The lock of the condition `changed` protects the state. A thread that changes the state notifies the condition.
    """

    _upcoming: Iterator[Any]  # yields groups, or what the subclass prepares for groups, such as files

    def __init__(self, changed: threading.Condition | None = None) -> None:
        self.changed = changed or threading.Condition()
        self.is_closed = False
        self._running_threads = 0  # background threads that have not ended

    @property
    def is_finished(self) -> bool:
        """True if no background thread will prepare another group."""
        return self.is_closed or self._running_threads == 0

    def close(self) -> None:
        """Release all prepared groups and wake all waiting threads."""
        with self.changed:
            if self.is_closed:
                return
            self.is_closed = True
            self._drop_items()
            self.changed.notify_all()

    def _drop_items(self) -> None:
        """Release all prepared groups. The caller holds the lock."""

    # Background threads

    def _start_threads(self, count: int, name: str) -> None:
        self._running_threads = count
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._prepare_groups()
        except Exception:  # not raised here: the thread that gathers these rows reads them itself and raises the error
            _log.debug("%s stopped", type(self).__name__, exc_info=True)
        with self.changed:
            self._running_threads -= 1
            is_last = self._running_threads == 0
            self.changed.notify_all()
        if is_last:
            self._upcoming = iter(())

    def _prepare_groups(self) -> None:
        """Prepare groups until no group is left or the look-ahead is closed."""

    def _admit(self, fits: Callable[[], bool], reserve: Callable[[], None]) -> bool:
        """Wait until `fits()` is true, then call `reserve()`.

        Return False if the look-ahead was closed. Both functions run with the lock held.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or fits())
            if self.is_closed:
                return False
            reserve()
            self.changed.notify_all()
            return True

    # Threads that gather rows

    def _advance(self) -> None:
        """Start to prepare as many upcoming groups as fit now. The caller holds the lock."""

    def _wait_for(self, find: Callable[[], Result | None]) -> Result:
        """Wait until `find()` returns a result other than None, and return this result.

        Raise ReadStoppedError if the look-ahead is closed.
        """
        with self.changed:
            while True:
                if not self.is_closed:
                    self._advance()
                if self.is_closed:
                    raise ReadStoppedError
                result = find()
                if result is not None:
                    return result
                self.changed.wait()

    def _release(self, free: Callable[[], None]) -> None:
        """Call `free()` to release memory, then start to prepare the groups that now fit."""
        with self.changed:
            if self.is_closed:
                return
            free()
            self._advance()
            self.changed.notify_all()


class GroupItems(Generic[Item]):
    """A first-in, first-out queue of prepared items for each group.

    This class has no lock. Its owner must hold a lock during every call.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Item]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, group: Hashable) -> bool:
        return group in self._queues

    def add(self, group: Hashable, item: Item) -> None:
        """Append an item to the queue of a group."""
        self._queues.setdefault(group, deque()).append(item)

    def pop(self, group: Hashable) -> Item | None:
        """Remove and return the first item of a group; None if it has no item."""
        queue = self._queues.get(group)
        if queue is None:
            return None
        item = queue.popleft()
        if not queue:
            del self._queues[group]
        return item

    def drain(self) -> list[Item]:
        """Remove and return all items."""
        items = [item for queue in self._queues.values() for item in queue]
        self._queues.clear()
        return items


def group_key(rows: Rows) -> GroupKey:
    """Return a short tuple by which to look up the group with these rows.

    The tuple has start and stop of a slice, else the length and about ten of the row numbers. So two groups that are
    not slices may have equal keys.
    """
    if isinstance(rows, slice):
        return rows.start, rows.stop
    step = max(1, len(rows) // 8)
    return len(rows), int(rows[-1]), *rows[::step].tolist()
