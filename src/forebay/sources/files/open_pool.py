"""`SourcePool`: keeps some sources open, and closes those that were used least recently."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from forebay.core.source import AbstractSource
from forebay.errors import SourceError

__all__ = ["SourcePool"]


class SourcePool:
    """Opens source `n` with `openers[n]` on its first use.

    At most `max_open` sources stay open. Their decompressed or parsed data (`AbstractSource.held_nbytes`) takes at most
    `max_held_nbytes` of memory. The pool never closes a source in use, so it may exceed both limits while threads use
    many sources. If only one source is open, it may exceed `max_held_nbytes`.
    """

    def __init__(self, openers: Sequence[Callable[[], AbstractSource]], *, max_open: int, max_held_nbytes: int) -> None:
        self._openers = openers
        self._max_open, self._max_held_nbytes = max_open, max_held_nbytes
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}  # by source number, least recently used first
        self._held_nbytes = 0  # of all open sources

    @property
    def open_count(self) -> int:
        return len(self._entries)

    @contextmanager
    def use(self, number: int) -> Iterator[AbstractSource]:
        """Yield source `number`. The pool keeps it open until the `with` block ends."""
        entry = self._acquire(number)
        try:
            yield entry.source
        finally:
            self._release(entry)

    def close(self) -> None:
        """Close the sources that no thread uses now, and every other source after its use."""
        with self._lock:
            self._max_open = 0
            self._close_surplus()

    def _acquire(self, number: int) -> "_Entry":
        with self._lock:
            if self._max_open == 0:
                raise SourceError("these files are closed. Open them again to read from them.")
            # Open the file under the lock, so that two threads never open it twice. Most openers read only a header.
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
        """Close unused sources until the pool is within its limits."""
        if not self._is_over_limit():
            return
        for number in [number for number, entry in self._entries.items() if not entry.users]:
            entry = self._entries.pop(number)
            self._held_nbytes -= entry.held_nbytes
            entry.source.close()
            if not self._is_over_limit():
                return

    def _is_over_limit(self) -> bool:
        # A single source stays open even above the memory limit, because its next use would read it again.
        holds_too_much = self._held_nbytes > self._max_held_nbytes and len(self._entries) > 1
        return holds_too_much or len(self._entries) > self._max_open


class _Entry:
    """An open source, the number of threads that use it, and its held bytes."""

    __slots__ = ("held_nbytes", "source", "users")

    def __init__(self, source: AbstractSource) -> None:
        self.source, self.users, self.held_nbytes = source, 0, 0
