"""A cache of decompressed chunks with a fixed number of equal buffers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.core.spec import Array

__all__ = ["ChunkCache"]


class ChunkCache:
    """Assigns chunks to buffers and pins them while threads gather rows.

    If no buffer is free, the cache evicts the least recently used chunk.

    A thread claims all chunks that it needs at once, or waits until there is room for all of them. So two threads
    never wait for each other's buffers. The thread then fills the missing chunks without a lock. After that, it waits
    for chunks that other threads fill.

    All buffers have one size, so a claim is a few NumPy operations on many chunks at once. The readers of object
    stores do not use this class, because byte ranges differ in size. Also, their RAM tier (`objects/cache_tiers.py`)
    never evicts, and `objects/range_reader.py` drops a range as soon as no group uses it.
    """

    def __init__(self, chunks: int, first_rows: Array) -> None:
        """Make an empty cache for a file of `chunks` chunks.

        The caller allocates one array for all buffers. `first_rows` lists the row of that array at which each buffer
        starts. If there are as many buffers as chunks, chunk i always uses buffer i.
        """
        self._first_rows = first_rows
        self._holds_all = len(first_rows) == chunks
        self._buffer = np.full(chunks, -1)  # the buffer of each chunk; -1: none
        self._users = np.zeros(chunks, np.int64)  # number of threads that pin each chunk
        self._last_claim = np.zeros(chunks, np.int64)  # `_claims` at the latest claim of each chunk, to find the oldest
        self._is_filled = np.zeros(chunks, np.bool_)
        self._owner = np.full(len(first_rows), -1)  # the chunk in each buffer; -1: none
        self._errors: dict[int, BaseException] = {}  # chunk -> why it could not be filled
        self._claims = 0  # number of claims so far
        self._changed = threading.Condition()
        self.is_complete = chunks == 0  # True once every chunk is filled and none can be evicted

    @property
    def max_claim(self) -> int:
        """Largest number of chunks that a thread may pin at once.

        It is a quarter of the buffers if not all chunks fit, so that other threads find buffers too.
        """
        return len(self._first_rows) if self._holds_all else max(1, len(self._first_rows) // 4)

    @property
    def used(self) -> int:
        """Number of buffers that hold a chunk."""
        return int(np.count_nonzero(self._owner >= 0))

    def first_rows(self, chunks: Any) -> Any:
        """Return the row of the array at which each of these pinned chunks starts."""
        return self._first_rows[self._buffer[chunks]]

    @contextmanager
    def pin(self, chunks: Array, fill: Callable[[int, int], None]) -> Iterator[None]:
        """Load distinct chunks, and keep them in their buffers until the `with` block ends.

        `fill(chunk, first_row)` writes a missing chunk to the array, from `first_row` on.
        """
        missing = self._claim(chunks)
        try:
            self._fill_missing(missing, fill)
            self._wait_until_filled(chunks)
            yield
        finally:
            self._release(chunks)

    def _claim(self, chunks: Array) -> list[int]:
        """Pin chunks, once there is a buffer for each. Return those to fill."""
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
            to_fill: list[int] = missing.tolist()
            return to_fill

    def _find_room(self, count: int, wanted: Array) -> Array:
        """Return `count` buffers, and evict unpinned chunks from them if necessary.

        Never evict a chunk in `wanted`. If too few buffers can be freed, return fewer than `count` and evict nothing.
        """
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
                self._fail(chunks[number:], error)  # this thread does not fill the later chunks either
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
        """Wait for chunks that other threads fill. Raise their error if they fail."""
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
            # Forget the error of a chunk that no thread pins. The next thread that needs this chunk loads it again.
            unused = [chunk for chunk in self._errors if self._users[chunk] == 0]
            for chunk in unused:
                del self._errors[chunk]
                self._evict(chunk)
            self._changed.notify_all()
