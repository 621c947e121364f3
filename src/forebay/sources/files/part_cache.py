"""A cache of decompressed parts of files, such as the row groups of Parquet files."""

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["PartCache"]

Part = TypeVar("Part")


class PartCache(Generic[Part]):
    """Keeps the most recently used parts, up to `max_nbytes` together.

    The part that was loaded last stays even if it is larger than `max_nbytes`. A thread that reads from an evicted part
    keeps it alive, so many threads together may exceed the limit. For parts of one size, use `ChunkCache`, whose
    buffers are allocated only once.
    """

    def __init__(self, max_nbytes: int) -> None:
        self._max_nbytes, self._lock, self._process_id = max_nbytes, threading.Lock(), os.getpid()
        self._entries: dict[Hashable, _CachedPart[Part]] = {}  # least recently used first
        self.nbytes = 0  # of all parts

    def get(self, key: Hashable, load: Callable[[], tuple[Part, int]]) -> Part:
        """Return the part with this key. Call `load` if it is not cached.

        `load` returns the part and its size in bytes. If several threads need a part at the same time, one loads it.

        >>> cache = PartCache(max_nbytes=10)
        >>> [cache.get(key, lambda: (key.upper(), 6)) for key in "abb"], cache.nbytes
        (['A', 'B', 'B'], 6)
        """
        if self._process_id != os.getpid():  # a forked process: another thread may have held a lock during the fork
            self._lock, self._entries, self.nbytes, self._process_id = threading.Lock(), {}, 0, os.getpid()
        with self._lock:
            entry: _CachedPart[Part] = self._entries.pop(key) if key in self._entries else _CachedPart()
            self._entries[key] = entry
        with entry.lock:
            if entry.part is None:
                entry.part, entry.nbytes = load()
                self._add(key, entry)
            return entry.part

    def clear(self) -> None:
        """Release all parts."""
        with self._lock:
            self._entries, self.nbytes = {}, 0

    def _add(self, key: Hashable, entry: "_CachedPart[Part]") -> None:
        with self._lock:
            if self._entries.get(key) is not entry:  # removed during `load`, by `clear` or by another thread
                return
            self.nbytes += entry.nbytes
            entry.is_counted = True
            for other in list(self._entries):
                if self.nbytes <= self._max_nbytes:
                    return
                if other != key and self._entries[other].is_counted:
                    self.nbytes -= self._entries.pop(other).nbytes


class _CachedPart(Generic[Part]):
    """A part, or None while a thread loads the part."""

    __slots__ = ("is_counted", "lock", "nbytes", "part")

    def __init__(self) -> None:
        self.lock, self.nbytes, self.is_counted = threading.Lock(), 0, False
        self.part: Part | None = None
