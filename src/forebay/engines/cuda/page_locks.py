"""Page-locking of memory that belongs to somebody else: in pieces, shared among feeds, and undone at the end.

Two feeds may share an array, and somebody may have locked a part of it before; locking a page twice is an error of the
driver's. So every piece is counted here, once for the whole process; what others have locked is used and left alone.

Only pages that are all the array's own may be locked: a copy of anybody's that crosses from locked memory into memory
that is not fails, so a neighbour on the heap whose buffer begins on the array's last page could not be copied any more.
"""

import bisect
import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from forebay.engines.cuda.driver import Device
from forebay.errors import DeviceError

__all__ = ["Lock", "PageLocks", "whole_pages"]

PIECE_NBYTES = 128 << 20  # locked in one call, which nothing can interrupt and which keeps others from taking memory


def whole_pages(address: int, nbytes: int) -> tuple[int, int]:
    """Where the pages begin and end that lie inside this memory from first byte to last."""
    page = mmap.PAGESIZE
    start = -(-address // page) * page
    return start, max(start, (address + nbytes) // page * page)


@dataclass(slots=True, eq=False)
class _Piece:
    start: int
    stop: int
    ours: bool  # locked by us, so to be unlocked by us
    users: int = 1


class Lock:
    """What one feed holds locked."""

    def __init__(self, locks: "PageLocks") -> None:
        self._locks = locks
        self._pieces: list[_Piece] = []
        self.nbytes = 0

    @property
    def seams(self) -> list[int]:
        """Addresses where one piece ends and another may begin: no copy may cross them."""
        return sorted({edge for piece in self._pieces for edge in (piece.start, piece.stop)})

    def add(self, address: int, nbytes: int, *, read_only: bool) -> None:
        """Lock some pages more, or what of them is not locked yet."""
        self._pieces += self._locks.acquire(address, nbytes, read_only=read_only)
        self.nbytes += nbytes

    def close(self) -> None:
        pieces, self._pieces = self._pieces, []
        self._locks.release(pieces)


class PageLocks:
    """All that is locked in this process, for one device's driver."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pieces: list[_Piece] = []  # by address; they never overlap
        self._mutex = threading.RLock()  # a feed may be collected, and so closed, while this very thread holds it
        self._inside = False
        self._let_go: list[_Piece] = []  # what such a feed had: given back when it disturbs nobody

    def acquire(self, address: int, nbytes: int, *, read_only: bool) -> list[_Piece]:
        with self._alone():
            taken: list[_Piece] = []
            try:
                for begin, end, known in self._cover(address, address + nbytes):
                    taken.append(self._share(known) if known else self._lock(begin, end, read_only=read_only))
            except BaseException:
                self._give_back(taken)
                raise
            return taken

    def release(self, pieces: Sequence[_Piece]) -> None:
        with self._alone():
            self._let_go += pieces

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nothing is locked or unlocked by others in the meantime, and in the end all is unlocked that was let go."""
        with self._mutex:
            if self._inside:
                yield
                return
            self._inside = True
            try:
                yield
            finally:
                self._inside = False
                let_go, self._let_go = self._let_go, []
                self._give_back(let_go)

    def _cover(self, start: int, stop: int) -> list[tuple[int, int, _Piece | None]]:
        """The range as pieces that are known and gaps between them."""
        found: list[tuple[int, int, _Piece | None]] = []
        for piece in [piece for piece in self._pieces if piece.start < stop and start < piece.stop]:
            if start < piece.start:
                found.append((start, piece.start, None))
            found.append((piece.start, piece.stop, piece))
            start = piece.stop
        if start < stop:
            found.append((start, stop, None))
        return found

    def _share(self, piece: _Piece) -> _Piece:
        piece.users += 1
        return piece

    def _lock(self, start: int, stop: int, *, read_only: bool) -> _Piece:
        ours = True
        try:
            self._device.lock(start, stop - start, read_only=read_only)
        except DeviceError:
            if not all(self._device.is_locked(page) for page in range(start, stop, mmap.PAGESIZE)):
                raise
            ours = False  # somebody else's, who will also unlock it
        piece = _Piece(start, stop, ours)
        bisect.insort(self._pieces, piece, key=lambda known: known.start)
        return piece

    def _give_back(self, pieces: Sequence[_Piece]) -> None:
        with ExitStack() as stack:  # all of them, whatever fails
            for piece in pieces:
                piece.users -= 1
                if piece.users == 0:
                    self._pieces.remove(piece)
                    if piece.ours:
                        stack.callback(self._device.unlock, piece.start)
