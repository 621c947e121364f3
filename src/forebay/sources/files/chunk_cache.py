"""A cache of decompressed chunks with a fixed number of equal buffers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.core.spec import Array

__all__ = ["ChunkCache"]


class ChunkCache:
    """Assigns chunks to buffers and pins them while threads gather rows. Evicts the least recently used chunk.

    A thread claims all chunks that it needs at once, or waits until there is room for all of them. So two threads
    never wait for each other's buffers. The thread then fills the missing chunks without a lock, and after that waits
    for chunks that other threads fill.

    The RAM tier of object stores (`objects/cache_tiers.py`) and the held byte ranges (`objects/range_reader.py`) do
    not use this class. Their entries differ in size, the tier never evicts, and a held range ends with its last user.
    Here all buffers have one size, so claims are array operations over many chunks at once.
    """

    def __init__(self, chunks: int, first_rows: Array) -> None:
        """Make an empty cache. `first_rows` has the first row of each buffer in the array that holds all buffers."""
        self._first_rows = first_rows
        self._holds_all = len(first_rows) == chunks
        self._buffer = np.full(chunks, -1)  # of each chunk
        self._users = np.zeros(chunks, np.int64)  # threads that pin each chunk
        self._last_claim = np.zeros(chunks, np.int64)  # number of the latest claim on each chunk
        self._is_filled = np.zeros(chunks, np.bool_)
        self._owner = np.full(len(first_rows), -1)  # the chunk in each buffer
        self._errors: dict[int, BaseException] = {}  # of chunks that could not be filled
        self._claims = 0
        self._changed = threading.Condition()
        self.is_complete = chunks == 0  # True if every chunk is in its own buffer for good

    @property
    def max_claim(self) -> int:
        """Largest number of chunks to pin at once, so that other threads find free buffers too."""
        return len(self._first_rows) if self._holds_all else max(1, len(self._first_rows) // 4)

    @property
    def used(self) -> int:
        """Number of buffers that hold a chunk."""
        return int(np.count_nonzero(self._owner >= 0))

    def first_rows(self, chunks: Any) -> Any:
        """Return the first row of the buffers of pinned chunks."""
        return self._first_rows[self._buffer[chunks]]

    @contextmanager
    def pin(self, chunks: Array, fill: Callable[[int, int], None]) -> Iterator[None]:
        """Keep distinct chunks in their buffers until the block ends. `fill(chunk, first_row)` loads a missing one."""
        missing = self._claim(chunks)
        try:
            self._fill_missing(missing, fill)
            self._wait_until_filled(chunks)
            yield
        finally:
            self._release(chunks)

    def _claim(self, chunks: Array) -> list[int]:
        with self._changed:
            while True:
                missing = chunks[self._buffer[chunks] < 0]
                buffers = missing if self._holds_all else self._find_room(len(missing), chunks)
                if len(buffers) == len(missing):
                    break
                self._changed.wait()
            self._buffer[missing], self._owner[buffers] = buffers, missing
            self._users[chunks] += 1
            self._claims += 1
            self._last_claim[chunks] = self._claims
            found: list[int] = missing.tolist()
            return found

    def _find_room(self, count: int, wanted: Array) -> Array:
        """Return `count` buffers and evict their chunks. If there are too few, return fewer and evict nothing."""
        if count == 0:
            return np.empty(0, np.intp)
        free = np.flatnonzero(self._owner < 0)[:count]
        if len(free) == count:
            return free
        idle = np.flatnonzero((self._owner >= 0) & (self._users[self._owner] == 0) & ~np.isin(self._owner, wanted))
        if len(free) + len(idle) < count:
            return free
        oldest = idle[np.argsort(self._last_claim[self._owner[idle]], kind="stable")[: count - len(free)]]
        self._evict(self._owner[oldest])
        return np.concatenate([free, oldest])

    def _evict(self, chunks: Any) -> None:
        self._owner[self._buffer[chunks]] = -1
        self._buffer[chunks], self._is_filled[chunks] = -1, False

    def _fill_missing(self, chunks: list[int], fill: Callable[[int, int], None]) -> None:
        for number, chunk in enumerate(chunks):
            try:
                fill(chunk, int(self._first_rows[self._buffer[chunk]]))
            except BaseException as error:
                self._fail(chunks[number:], error)
                raise
            with self._changed:
                self._is_filled[chunk] = True
                self.is_complete = self._holds_all and bool(self._is_filled.all())
                self._changed.notify_all()

    def _fail(self, chunks: list[int], error: BaseException) -> None:
        with self._changed:
            self._errors |= dict.fromkeys(chunks, error)
            self._changed.notify_all()

    def _wait_until_filled(self, chunks: Array) -> None:
        """Wait for chunks that other threads claimed earlier."""
        if self._is_filled[chunks].all():
            return
        with self._changed:
            while not self._is_filled[chunks].all():
                error = next((self._errors[chunk] for chunk in chunks.tolist() if chunk in self._errors), None)
                if error is not None:
                    raise error
                self._changed.wait()

    def _release(self, chunks: Array) -> None:
        with self._changed:
            self._users[chunks] -= 1
            # The next thread that needs a failed chunk tries to load it again.
            unused = [chunk for chunk in self._errors if self._users[chunk] == 0]
            for chunk in unused:
                del self._errors[chunk]
                self._evict(chunk)
            self._changed.notify_all()
