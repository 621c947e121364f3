"""A bounded pool of open sources that closes the least recently used ones."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from forebay.core.source import AbstractSource
from forebay.errors import SourceError

__all__ = ["SourcePool"]


class SourcePool:
    """Sources by number, opened on first use.

    At most `max_open` sources stay open, and together they hold at most `max_held_nbytes` of memory (`held_nbytes` of
    each source: decompressed or parsed data). The pool never closes a source in use. So with more threads than
    `max_open`, it exceeds the bounds until a thread is done.
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
        """Yield source `number`; it stays open until the `with` block ends."""
        entry = self._acquire(number)
        try:
            yield entry.source
        finally:
            self._release(entry)

    def close(self) -> None:
        """Close every source that is not in use. The others close when they are released."""
        with self._lock:
            self._max_open = 0
            self._close_surplus()

    def _acquire(self, number: int) -> "_Entry":
        with self._lock:
            if self._max_open == 0:
                raise SourceError("these files are closed. Open them again to read from them.")
            # Opening under the lock stops two threads from opening one file twice. Headers take microseconds.
            entry = self._entries.pop(number, None) or _Entry(self._openers[number]())
            self._entries[number] = entry
            entry.users += 1
            self._close_surplus()
            return entry

    def _release(self, entry: "_Entry") -> None:
        with self._lock:
            entry.users -= 1
            held_nbytes = entry.source.held_nbytes
            self._held_nbytes += held_nbytes - entry.held_nbytes
            entry.held_nbytes = held_nbytes
            self._close_surplus()

    def _close_surplus(self) -> None:
        if not self._is_over_limit():
            return
        for number in [number for number, entry in self._entries.items() if not entry.users]:
            entry = self._entries.pop(number)
            self._held_nbytes -= entry.held_nbytes
            entry.source.close()
            if not self._is_over_limit():
                return

    def _is_over_limit(self) -> bool:
        # A single source stays open, whatever it holds: after a close, all of it would be read again.
        holds_too_much = self._held_nbytes > self._max_held_nbytes and len(self._entries) > 1
        return holds_too_much or len(self._entries) > self._max_open


class _Entry:
    __slots__ = ("held_nbytes", "source", "users")

    def __init__(self, source: AbstractSource) -> None:
        self.source, self.users, self.held_nbytes = source, 0, 0
