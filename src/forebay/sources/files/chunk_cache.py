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

    A thread pins all chunks that it needs in one step. If there are too few buffers, it pins no chunk and waits. So two
    threads never wait for each other's buffers. After this step, the thread fills the missing chunks (decompresses them
    into their buffers) without holding the lock, and waits for chunks that other threads fill.

    All buffers have one size, so a thread pins many chunks with a few NumPy operations. The readers of object stores do
    not use this class, because byte ranges differ in size.
    """

    def __init__(self, chunk_count: int, first_rows: Array) -> None:
        """Make an empty cache for a file of `chunk_count` chunks.

        The caller allocates one array for all buffers. Buffer i starts at row `first_rows[i]` of this array. If there
        are as many buffers as chunks, chunk i always uses buffer i.
        """
        self._buffer_first_rows = first_rows
        self._fits_all = len(first_rows) == chunk_count
        self._chunk_buffers = np.full(chunk_count, -1)  # number of the buffer of each chunk; -1: none
        self._pin_counts = np.zeros(chunk_count, np.int64)  # number of threads that pin each chunk
        self._last_uses = np.zeros(chunk_count, np.int64)  # `_use_count` when a thread last pinned each chunk
        self._is_filled = np.zeros(chunk_count, np.bool_)  # for each chunk
        self._buffer_chunks = np.full(len(first_rows), -1)  # number of the chunk in each buffer; -1: none
        self._errors: dict[int, BaseException] = {}  # chunk -> error that its fill raised
        self._use_count = 0  # number of calls of `pin`, in all threads
        self._changed = threading.Condition()
        self.is_complete = chunk_count == 0  # True once all chunks are filled; never if there are too few buffers

    @property
    def max_pinned(self) -> int:
        """Largest number of chunks that a thread may pin at once.

        If not all chunks fit in the cache, this is a quarter of the buffers (at least 1), to leave buffers for other
        threads.
        """
        return len(self._buffer_first_rows) if self._fits_all else max(1, len(self._buffer_first_rows) // 4)

    @property
    def used_buffers(self) -> int:
        """Number of buffers that hold a chunk."""
        return int(np.count_nonzero(self._buffer_chunks >= 0))

    def first_rows(self, chunks: Any) -> Any:
        """Return the row of the caller's array at which each of these pinned chunks starts."""
        return self._buffer_first_rows[self._chunk_buffers[chunks]]

    @contextmanager
    def pin(self, chunks: Array, fill: Callable[[int, int], None]) -> Iterator[None]:
        """Load distinct chunks, and keep them in their buffers until the `with` block ends.

        `fill(chunk, first_row)` writes a missing chunk to the caller's array, from row `first_row` on.
        """
        missing = self._assign_and_pin(chunks)
        try:
            self._fill_missing(missing, fill)
            self._wait_until_filled(chunks)
            yield
        finally:
            self._release(chunks)

    def _assign_and_pin(self, chunks: Array) -> list[int]:
        """Pin all chunks, and assign buffers to those that are missing in the cache.

        Wait until enough buffers are free. Return the missing chunks, which the caller must fill.
        """
        with self._changed:
            while True:
                missing = chunks[self._chunk_buffers[chunks] < 0]
                buffers = missing if self._fits_all else self._find_buffers(len(missing), chunks)
                if len(buffers) == len(missing):
                    break
                self._changed.wait()
            self._chunk_buffers[missing], self._buffer_chunks[buffers] = buffers, missing
            self._pin_counts[chunks] += 1
            self._use_count += 1
            self._last_uses[chunks] = self._use_count
            missing_chunks: list[int] = missing.tolist()
            return missing_chunks

    def _find_buffers(self, count: int, needed: Array) -> Array:
        """Return the numbers of `count` free buffers; evict unpinned chunks if necessary.

        Never evict a chunk in `needed`. If too few buffers can be freed, evict nothing and return fewer buffers.
        """
        if count == 0:
            return np.empty(0, np.intp)
        chunks = self._buffer_chunks
        free = np.flatnonzero(chunks < 0)[:count]
        if len(free) == count:
            return free
        evictable = np.flatnonzero((chunks >= 0) & (self._pin_counts[chunks] == 0) & ~np.isin(chunks, needed))
        if len(free) + len(evictable) < count:
            return free
        oldest = evictable[np.argsort(self._last_uses[chunks[evictable]], kind="stable")[: count - len(free)]]
        self._evict(chunks[oldest])
        return np.concatenate([free, oldest])

    def _evict(self, chunks: Any) -> None:
        self._buffer_chunks[self._chunk_buffers[chunks]] = -1
        self._chunk_buffers[chunks], self._is_filled[chunks] = -1, False

    def _fill_missing(self, chunks: list[int], fill: Callable[[int, int], None]) -> None:
        for index, chunk in enumerate(chunks):
            try:
                fill(chunk, int(self._buffer_first_rows[self._chunk_buffers[chunk]]))
            except BaseException as error:
                self._record_error(chunks[index:], error)  # this thread does not fill the chunks after this one either
                raise
            with self._changed:
                self._is_filled[chunk] = True
                self.is_complete = self._fits_all and bool(self._is_filled.all())
                self._changed.notify_all()

    def _record_error(self, chunks: list[int], error: BaseException) -> None:
        with self._changed:
            self._errors |= dict.fromkeys(chunks, error)
            self._changed.notify_all()

    def _wait_until_filled(self, chunks: Array) -> None:
        """Wait for chunks that other threads fill. Raise the error of a failed fill."""
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
            self._pin_counts[chunks] -= 1
            # Drop failed chunks that no thread pins. The next thread that needs such a chunk fills it again.
            unpinned = [chunk for chunk in self._errors if self._pin_counts[chunk] == 0]
            for chunk in unpinned:
                del self._errors[chunk]
                self._evict(chunk)
            self._changed.notify_all()
