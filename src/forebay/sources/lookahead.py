"""A bounded look-ahead over the upcoming groups of a feed, shared by all prefetchers."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from forebay.errors import SourceError

__all__ = ["GroupItems", "LookAhead", "ReadStoppedError"]

Item = TypeVar("Item")
Found = TypeVar("Found")

_log = logging.getLogger(__name__)


class ReadStoppedError(SourceError):
    """Raised in a thread that waits for a group after the look-ahead was closed."""

    def __init__(self) -> None:
        super().__init__("reading was stopped: the feed was closed or a new iteration began.")


class LookAhead:
    """Prepares upcoming groups before a consumer needs them.

    A subclass defines what it prepares and how much fits in its budget. It works in one of two ways:

    - Background threads prepare groups. `_start_threads` starts them, they run `_prepare_groups`, and `_admit` lets
      them wait for room.
    - The threads that gather rows also prepare groups, so no other thread is needed. `_wait_for` and `_release` call
      `_advance`, which starts as many groups as fit and never waits.

    The condition `changed` guards all state. It is notified when something was prepared, released or closed.
    """

    def __init__(self, changed: threading.Condition | None = None) -> None:
        self.changed = changed or threading.Condition()
        self.is_closed = False
        self._running = 0  # background threads

    @property
    def is_finished(self) -> bool:
        """True if no background thread will prepare another group."""
        return self.is_closed or self._running == 0

    def close(self) -> None:
        """Drop everything that was prepared and wake all threads that wait."""
        with self.changed:
            if self.is_closed:
                return
            self.is_closed = True
            self._drop_items()
            self.changed.notify_all()

    def _drop_items(self) -> None:
        """Release everything that was prepared. The caller holds the lock."""

    # Background threads

    def _start_threads(self, count: int, name: str) -> None:
        self._running = count
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._prepare_groups()
        except Exception:  # prefetching is optional; the thread that needs the rows gets the same error and raises it
            _log.debug("%s stopped", type(self).__name__, exc_info=True)
        with self.changed:
            self._running -= 1
            self.changed.notify_all()

    def _prepare_groups(self) -> None:
        """Prepare one group after the other until none is left or the look-ahead is closed."""

    def _admit(self, fits: Callable[[], bool], hold: Callable[[], None]) -> bool:
        """Wait until `fits()` is true, then call `hold()`.

        Return False if the look-ahead was closed. Both functions run with the lock held.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or fits())
            if self.is_closed:
                return False
            hold()
            self.changed.notify_all()
            return True

    # Threads that gather rows

    def _advance(self) -> None:
        """Start as many upcoming groups as fit now. The caller holds the lock."""

    def _wait_for(self, find: Callable[[], Found | None]) -> Found:
        """Wait until `find()` returns something other than None, and return it."""
        with self.changed:
            while True:
                if not self.is_closed:
                    self._advance()
                if self.is_closed:
                    raise ReadStoppedError
                found = find()
                if found is not None:
                    return found
                self.changed.wait()

    def _release(self, free: Callable[[], None]) -> None:
        """Call `free()` to release memory, then start the groups that fit."""
        with self.changed:
            if self.is_closed:
                return
            free()
            self._advance()
            self.changed.notify_all()


class GroupItems(Generic[Item]):
    """The prepared items of each group, first in, first out.

    The caller holds the lock of the look-ahead.
    """

    def __init__(self) -> None:
        self._items: dict[Hashable, deque[Item]] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def __contains__(self, group: Hashable) -> bool:
        return group in self._items

    def add(self, group: Hashable, item: Item) -> None:
        """Add an item of a group."""
        self._items.setdefault(group, deque()).append(item)

    def pop(self, group: Hashable) -> Item | None:
        """Remove and return the first item of a group, or None."""
        items = self._items.get(group)
        if items is None:
            return None
        item = items.popleft()
        if not items:
            del self._items[group]
        return item

    def drain(self) -> list[Item]:
        """Remove and return all items."""
        left = [item for items in self._items.values() for item in items]
        self._items.clear()
        return left
