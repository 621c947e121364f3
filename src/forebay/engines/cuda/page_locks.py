"""Page-locks on memory that Forebay does not own, such as arrays of the user.

The driver refuses to lock a page twice, but two feeds may read the same array, and other code may have locked a part of
the array. Therefore one registry per process counts the users of every locked range. Forebay also uses page-locks of
other code, but never releases them.

Forebay locks only pages without data of other code: the pages that are fully inside an array, or all pages of a mapped
file. The driver refuses every copy that crosses from locked into unlocked memory. If Forebay locked the last page of an
array, other code could no longer copy a heap buffer that begins on that page.
"""

import bisect
import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from forebay.engines.cuda.driver import Device
from forebay.errors import DeviceError

__all__ = ["PageLockSet", "PageLocks", "whole_pages"]

LOCK_STEP_NBYTES = 128 << 20  # bytes per driver call; a call cannot be interrupted and blocks other allocations


def whole_pages(address: int, nbytes: int) -> tuple[int, int]:
    """Return start and end of the pages that are fully inside this memory."""
    page = mmap.PAGESIZE
    start = -(-address // page) * page
    return start, max(start, (address + nbytes) // page * page)


@dataclass(slots=True, eq=False)
class _LockedRange:
    start: int  # address
    stop: int  # address
    is_ours: bool  # whether Forebay locked the range, and so must unlock it
    users: int = 1  # how many page-lock sets contain the range


class PageLockSet:
    """The page-locks that one feed uses."""

    def __init__(self, locks: "PageLocks") -> None:
        self._locks = locks
        self._ranges: list[_LockedRange] = []
        self.nbytes = 0  # bytes of all memory passed to `add`

    @property
    def boundaries(self) -> list[int]:
        """Addresses where a locked range begins or ends. No copy may cross such an address."""
        return sorted({address for locked in self._ranges for address in (locked.start, locked.stop)})

    def add(self, address: int, nbytes: int, *, read_only: bool) -> None:
        """Lock more memory. Ranges that are locked already get one more user."""
        self._ranges += self._locks.acquire(address, nbytes, read_only=read_only)
        self.nbytes += nbytes

    def close(self) -> None:
        ranges, self._ranges = self._ranges, []
        self._locks.release(ranges)


class PageLocks:
    """The registry of all page-locks of this process."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._ranges: list[_LockedRange] = []  # sorted by address; they never overlap
        # Reentrant, because the garbage collector may close a feed while this thread holds the mutex. `_to_release`
        # collects the ranges of such a feed, and `_exclusive` releases them before it releases the mutex.
        self._mutex = threading.RLock()
        self._is_busy = False  # whether a thread is inside `_exclusive`
        self._to_release: list[_LockedRange] = []

    def acquire(self, address: int, nbytes: int, *, read_only: bool) -> list[_LockedRange]:
        """Lock the memory, and return its locked ranges, each with one more user."""
        with self._exclusive():
            acquired: list[_LockedRange] = []
            try:
                for start, stop, known in self._split_by_locks(address, address + nbytes):
                    acquired.append(self._add_user(known) if known else self._lock(start, stop, read_only=read_only))
            except BaseException:
                self._drop_users(acquired)
                raise
            return acquired

    def release(self, ranges: Sequence[_LockedRange]) -> None:
        """Remove one user of each range."""
        with self._exclusive():
            self._to_release += ranges

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the mutex, and release the ranges in `_to_release` at the end."""
        with self._mutex:
            if self._is_busy:  # a nested call; the outer call releases the ranges
                yield
                return
            self._is_busy = True
            try:
                yield
            finally:
                self._is_busy = False
                to_release, self._to_release = self._to_release, []
                self._drop_users(to_release)

    def _split_by_locks(self, start: int, stop: int) -> list[tuple[int, int, _LockedRange | None]]:
        """Return (start, stop, lock) of the locked ranges and the gaps in this range.

        The result is sorted by address. The lock of a gap is None.
        """
        parts: list[tuple[int, int, _LockedRange | None]] = []
        for known in [known for known in self._ranges if known.start < stop and start < known.stop]:
            if start < known.start:
                parts.append((start, known.start, None))
            parts.append((known.start, known.stop, known))
            start = known.stop
        if start < stop:
            parts.append((start, stop, None))
        return parts

    def _add_user(self, locked: _LockedRange) -> _LockedRange:
        locked.users += 1
        return locked

    def _lock(self, start: int, stop: int, *, read_only: bool) -> _LockedRange:
        is_ours = True
        try:
            self._device.page_lock(start, stop - start, read_only=read_only)
        except DeviceError:
            if not all(self._device.is_page_locked(page) for page in range(start, stop, mmap.PAGESIZE)):
                raise
            is_ours = False  # other code locked these pages and will unlock them
        locked = _LockedRange(start, stop, is_ours)
        bisect.insort(self._ranges, locked, key=lambda known: known.start)
        return locked

    def _drop_users(self, ranges: Sequence[_LockedRange]) -> None:
        """Remove one user of each range, and unlock ranges without users."""
        with ExitStack() as stack:  # an error in one range must not leave the others locked
            for locked in ranges:
                locked.users -= 1
                if locked.users == 0:
                    self._ranges.remove(locked)
                    if locked.is_ours:
                        stack.callback(self._device.page_unlock, locked.start)
