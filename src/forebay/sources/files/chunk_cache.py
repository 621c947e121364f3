"""Which chunk is held where: a fixed number of places, given to chunks as they are needed.

A thread claims all the chunks it needs in one go, or waits until there is room for all, so no two threads wait for
each other's places. It then fills those that nobody held, without a lock, before it waits for those that others fill.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.core.spec import Array

__all__ = ["Shelf"]


class ChunkCache:
    """Places for chunks; `firsts` are the rows where they begin. The chunk used least recently makes room."""

    def __init__(self, chunks: int, firsts: Array) -> None:
        self._firsts = firsts
        self._holds_all = len(firsts) == chunks
        self._place = np.full(chunks, -1)  # of a chunk
        self._users = np.zeros(chunks, np.int64)
        self._used = np.zeros(chunks, np.int64)  # when, counted in claims
        self._filled = np.zeros(chunks, np.bool_)
        self._owner = np.full(len(firsts), -1)  # the chunk at a place
        self._failed: dict[int, BaseException] = {}
        self._claims = 0
        self._changed = threading.Condition()
        self.complete = chunks == 0  # whether every chunk lies at its own place for good

    @property
    def most(self) -> int:
        """Chunks to hold at once, so that other threads find places too."""
        return len(self._firsts) if self._holds_all else max(1, len(self._firsts) // 4)

    @property
    def taken(self) -> int:
        """Places that hold something."""
        return int(np.count_nonzero(self._owner >= 0))

    def first_rows(self, chunks: Any) -> Any:
        """Where chunks begin that are being held."""
        return self._firsts[self._place[chunks]]

    @contextmanager
    def hold(self, chunks: Array, fill: Callable[[int, int], None]) -> Iterator[None]:
        """Keep these chunks, each named once, in place until the block ends; `fill(chunk, first_row)` brings one in."""
        missing = self._claim(chunks)
        try:
            self._bring_in(missing, fill)
            self._await(chunks)
            yield
        finally:
            self._release(chunks)

    def _claim(self, chunks: Array) -> list[int]:
        with self._changed:
            while True:
                missing = chunks[self._place[chunks] < 0]
                places = missing if self._holds_all else self._find_room(len(missing), chunks)
                if len(places) == len(missing):
                    break
                self._changed.wait()
            self._place[missing], self._owner[places] = places, missing
            self._users[chunks] += 1
            self._claims += 1
            self._used[chunks] = self._claims
            found: list[int] = missing.tolist()
            return found

    def _find_room(self, count: int, wanted: Array) -> Array:
        """So many places, emptied where need be; fewer if there are not enough, and then none is emptied."""
        if count == 0:
            return np.empty(0, np.intp)
        free = np.flatnonzero(self._owner < 0)[:count]
        if len(free) == count:
            return free
        idle = np.flatnonzero((self._owner >= 0) & (self._users[self._owner] == 0) & ~np.isin(self._owner, wanted))
        if len(free) + len(idle) < count:
            return free
        oldest = idle[np.argsort(self._used[self._owner[idle]], kind="stable")[: count - len(free)]]
        self._forget(self._owner[oldest])
        return np.concatenate([free, oldest])

    def _forget(self, chunks: Any) -> None:
        self._owner[self._place[chunks]] = -1
        self._place[chunks], self._filled[chunks] = -1, False

    def _bring_in(self, chunks: list[int], fill: Callable[[int, int], None]) -> None:
        for number, chunk in enumerate(chunks):
            try:
                fill(chunk, int(self._firsts[self._place[chunk]]))
            except BaseException as error:
                self._fail(chunks[number:], error)
                raise
            with self._changed:
                self._filled[chunk] = True
                self.complete = self._holds_all and bool(self._filled.all())
                self._changed.notify_all()

    def _fail(self, chunks: list[int], error: BaseException) -> None:
        with self._changed:
            self._failed |= dict.fromkeys(chunks, error)
            self._changed.notify_all()

    def _await(self, chunks: Array) -> None:
        """Until others have brought in what they had claimed before."""
        if self._filled[chunks].all():
            return
        with self._changed:
            while not self._filled[chunks].all():
                failed = next((self._failed[chunk] for chunk in chunks.tolist() if chunk in self._failed), None)
                if failed is not None:
                    raise failed
                self._changed.wait()

    def _release(self, chunks: Array) -> None:
        with self._changed:
            self._users[chunks] -= 1
            # What could not be brought in is tried again by the next who wants it.
            given_up = [chunk for chunk in self._failed if self._users[chunk] == 0]
            for chunk in given_up:
                del self._failed[chunk]
                self._forget(chunk)
            self._changed.notify_all()
