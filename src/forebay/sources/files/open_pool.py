"""A bounded number of open sources: the ones used least recently are closed, never one that is in use."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from forebay.core.source import AbstractSource
from forebay.errors import SourceError

__all__ = ["SourcePool"]


class SourcePool:
    """Sources by number, opened when they are used.

    At most `max_open` of them stay open, and they hold at most `max_held_nbytes` of memory of their own (what a source
    calls `held_nbytes`: inflated or parsed data). Those in use count but are never closed, so with more threads than
    that the bounds give way until one is done.
    """

    def __init__(self, openers: Sequence[Callable[[], AbstractSource]], *, max_open: int, max_held_nbytes: int) -> None:
        self._openers = openers
        self._max_open, self._max_held_nbytes = max_open, max_held_nbytes
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}  # least recently used first
        self._held_nbytes = 0

    @property
    def open_count(self) -> int:
        return len(self._entries)

    @contextmanager
    def use(self, number: int) -> Iterator[AbstractSource]:
        """The source of this number, open until the block ends."""
        entry = self._acquire(number)
        try:
            yield entry.source
        finally:
            self._release(entry)

    def close(self) -> None:
        """Close every source that is not in use; those that are close when they are released."""
        with self._lock:
            self._max_open = 0
            self._close_surplus()

    def _acquire(self, number: int) -> "_Entry":
        with self._lock:
            if self._max_open == 0:
                raise SourceError("these files were closed: open them again to read from them.")
            # Opening under the lock keeps two threads from opening one file twice; headers take microseconds.
            entry = self._entries.pop(number, None) or _Entry(self._openers[number]())
            self._entries[number] = entry
            entry.users += 1
            self._close_surplus()
            return entry

    def _release(self, entry: "_Entry") -> None:
        with self._lock:
            entry.users -= 1
            held = entry.source.held_nbytes
            self._held_nbytes += held - entry.held_nbytes
            entry.held_nbytes = held
            self._close_surplus()

    def _close_surplus(self) -> None:
        if not self._is_over():
            return
        for number in [number for number, entry in self._entries.items() if not entry.users]:
            entry = self._entries.pop(number)
            self._held_nbytes -= entry.held_nbytes
            entry.source.close()
            if not self._is_over():
                return

    def _is_over(self) -> bool:
        # A lone source stays, however much it holds: closing it would only mean to read it all again.
        too_much = self._held_nbytes > self._max_held_nbytes and len(self._entries) > 1
        return too_much or len(self._entries) > self._max_open


class _Entry:
    __slots__ = ("held_nbytes", "source", "users")

    def __init__(self, source: AbstractSource) -> None:
        self.source, self.users, self.held_nbytes = source, 0, 0
