"""The tier on local disk: a file a block, under a byte budget that all processes on the folder share.

A block is written under another name and renamed when it is whole, so it is there entirely or not at all; a checksum
at its end is compared when it is first read. Its name is made of address, version and range: a changed object has other
names. What is reserved is a file of its full length from the start, under a lock, so the files always add up to what is
used. A disk that is full, read-only or gone costs the tier and not the run: that is said in the log and in `explain()`,
and reads go past it.
"""

import fcntl
import hashlib
import logging
import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from forebay.core.decision import Reason
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.stored_object import Piece, StoredObject

__all__ = ["DiskTier"]

_CHECK_NBYTES = 4  # of the checksum at the end of each file
_STALE_SECONDS = 3600  # a part that nobody has written to for so long was left by a process that died

_log = logging.getLogger(__name__)


class DiskTier:
    """Blocks in a folder; they outlive the process."""

    def __init__(self, folder: str | os.PathLike[str], budget_nbytes: int) -> None:
        self._folder, self.budget_nbytes = Path(folder).expanduser(), budget_nbytes
        self._blocks: dict[Piece, Array] = {}
        self._names: set[str] = set()  # of the blocks that are known to be there
        self._used_nbytes = 0  # by all processes, when this one last looked
        self._trouble = ""
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self._drop_stale_parts()
                self._write_used(self._count())
        except OSError as error:
            self._give_up(error)

    @property
    def room_nbytes(self) -> int:
        return 0 if self._trouble else max(0, self.budget_nbytes - self._used_nbytes)

    def ready(self, piece: Piece) -> Array | None:
        return self._blocks.get(piece)

    def has(self, stored: StoredObject, piece: Piece) -> bool:
        return piece in self._blocks or _name(stored, piece) in self._names

    def find(self, stored: StoredObject, piece: Piece) -> Array | None:
        if not stored.version:
            return None
        path = self._folder / _name(stored, piece)
        try:
            data = np.memmap(path, np.uint8, mode="r")
        except (OSError, ValueError):  # not there, not readable or empty: the store has it
            return None
        block, check = np.asarray(data[:-_CHECK_NBYTES]), data[-_CHECK_NBYTES:].tobytes()
        if block.nbytes != piece.nbytes or zlib.crc32(block.data).to_bytes(_CHECK_NBYTES) != check:
            self._drop_damaged(path, stored)
            return None
        return self._known(path.name, piece, block)

    def keep(self, stored: StoredObject, piece: Piece, data: bytes) -> Array | None:
        if not stored.version or len(data) + _CHECK_NBYTES > self.room_nbytes:
            return None
        path = self._folder / _name(stored, piece)
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            if not self._reserve(part, len(data) + _CHECK_NBYTES):
                return None
            _write(part, data)
            self._settle(part, path)
            block = np.asarray(np.memmap(path, np.uint8, mode="r", shape=(len(data),)))
        except (OSError, ValueError) as error:
            self._give_back(part, len(data) + _CHECK_NBYTES)
            self._give_up(error)
            return None
        return self._known(path.name, piece, block)

    def reasons(self) -> Sequence[Reason]:
        if self._trouble:
            return [Reason("disk tier", "given up", f"{self._trouble}: what is read from now on is not kept")]
        told = f"in {self._folder}, of {format_nbytes(self.budget_nbytes)} that may be; shared and never evicted"
        return [Reason("disk tier", f"{format_nbytes(self._used_nbytes)} held", told)]

    def close(self) -> None:
        """Unmap what is mapped; the files stay."""
        self._blocks.clear()

    def _known(self, name: str, piece: Piece, block: Array) -> Array:
        self._names.add(name)
        self._blocks[piece] = block
        return block

    # Room

    def _reserve(self, part: Path, nbytes: int) -> bool:
        with self._alone():
            used = self._used()
            if used + nbytes > self.budget_nbytes:
                self._used_nbytes = used
                return False
            with part.open("wb") as file:
                file.truncate(nbytes)
            self._write_used(used + nbytes)
        return True

    def _settle(self, part: Path, path: Path) -> None:
        """Give a block its name, unless another process was faster: ranks of one host read the same blocks."""
        nbytes = part.stat().st_size
        with self._alone():
            if path.exists() and path.stat().st_size == nbytes:
                part.unlink()
                self._write_used(max(0, self._used() - nbytes))
            else:
                part.rename(path)

    def _give_back(self, part: Path, nbytes: int) -> None:
        with suppress(OSError), self._alone():
            part.unlink()
            self._write_used(max(0, self._used() - nbytes))

    def _used(self) -> int:
        try:
            return int((self._folder / "used").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _write_used(self, nbytes: int) -> None:
        (self._folder / "used").write_text(str(nbytes))
        self._used_nbytes = nbytes

    def _count(self) -> int:
        """What all files take, those of objects that were fetched whole too; and which blocks there are."""
        found = {path: path.stat().st_size for path in self._folder.rglob("*") if path.suffix != "" and path.is_file()}
        self._names = {path.name for path in found if path.suffix == ".block"}
        return sum(found.values())

    def _drop_stale_parts(self) -> None:
        for part in self._folder.glob("*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only this thread, of all processes: a lock of the system for processes, one of our own for threads."""
        with self._lock, (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Trouble

    def _give_up(self, error: OSError | ValueError) -> None:
        if not self._trouble:
            self._trouble = f"{self._folder}: {getattr(error, 'strerror', None) or error}"
            _log.warning("the cache is given up, and reading goes on without: %s", self._trouble)

    def _drop_damaged(self, path: Path, stored: StoredObject) -> None:
        _log.warning("a cached block of %s was damaged, and is read again", stored.url)
        self._names.discard(path.name)
        with suppress(OSError):
            self._give_back(path, path.stat().st_size)


def _name(stored: StoredObject, piece: Piece) -> str:
    told = f"{stored.url}\0{stored.version}\0{stored.nbytes}\0{piece.start}-{piece.stop}"
    return f"{hashlib.sha256(told.encode()).hexdigest()[:40]}.block"


def _write(part: Path, data: bytes) -> None:
    with part.open("r+b", buffering=0) as file:
        left = memoryview(data)
        while left:  # a disk that fills up takes a part, and then fails
            left = left[file.write(left) :]
        file.write(zlib.crc32(data).to_bytes(_CHECK_NBYTES))
