"""The cache tier on local disk: one file per block.

All processes share its byte budget.

A block is written to a temporary file and renamed when it is complete. The first load in a process verifies the
checksum at the end of the file. The file name is a hash of URL, version and byte range, so a changed object gets other
names. To reserve budget, a process creates a file of the full length under a lock. So the file sizes always add up to
the used bytes.

If the disk is full, read-only or missing, the tier is disabled and reading continues without it. The log and
`explain()` report this.
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

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["DiskTier"]

_CHECKSUM_NBYTES = 4  # CRC-32 at the end of each file
_STALE_SECONDS = 3600  # a temporary file unchanged for this long was left by a process that died

_log = logging.getLogger(__name__)


class DiskTier:
    """Blocks in a folder. They stay when the process ends."""

    def __init__(self, folder: str | os.PathLike[str], budget_nbytes: int) -> None:
        self._folder, self.budget_nbytes = Path(folder).expanduser(), budget_nbytes
        self._blocks: dict[ByteRange, Array] = {}  # blocks that this process has mapped
        self._names: set[str] = set()  # names of the block files that exist
        self._used_nbytes = 0  # by all processes, when this process last checked
        self._problem = ""  # why the tier is disabled
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._exclusive():
                self._delete_stale_parts()
                self._write_used(self._scan_folder())
        except OSError as error:
            self._disable(error)

    @property
    def free_nbytes(self) -> int:
        return 0 if self._problem else max(0, self.budget_nbytes - self._used_nbytes)

    def get(self, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def contains(self, stored: StoredObject, block: ByteRange) -> bool:
        return block in self._blocks or _block_name(stored, block) in self._names

    def load(self, stored: StoredObject, block: ByteRange) -> Array | None:
        if not stored.version:
            return None
        path = self._folder / _block_name(stored, block)
        try:
            file = np.memmap(path, np.uint8, mode="r")
        except (OSError, ValueError):  # missing, unreadable or empty: the store has the block
            return None
        data, checksum = np.asarray(file[:-_CHECKSUM_NBYTES]), file[-_CHECKSUM_NBYTES:].tobytes()
        if data.nbytes != block.nbytes or zlib.crc32(data.data).to_bytes(_CHECKSUM_NBYTES) != checksum:
            self._delete_damaged(path, stored)
            return None
        return self._remember(path.name, block, data)

    def put(self, stored: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        if not stored.version or len(data) + _CHECKSUM_NBYTES > self.free_nbytes:
            return None
        path = self._folder / _block_name(stored, block)
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            if not self._reserve(part, len(data) + _CHECKSUM_NBYTES):
                return None
            _write_block(part, data)
            self._publish(part, path)
            mapped = np.asarray(np.memmap(path, np.uint8, mode="r", shape=(len(data),)))
        except (OSError, ValueError) as error:
            self._delete(part, len(data) + _CHECKSUM_NBYTES)
            self._disable(error)
            return None
        return self._remember(path.name, block, mapped)

    def decisions(self) -> Sequence[Decision]:
        if self._problem:
            return [Decision("disk tier", "disabled", f"{self._problem}; new blocks are not cached")]
        budget = format_nbytes(self.budget_nbytes)
        why = f"in {self._folder}, of a budget of {budget} that all processes share; blocks are never evicted"
        return [Decision("disk tier", f"{format_nbytes(self._used_nbytes)} held", why)]

    def close(self) -> None:
        """Unmap all blocks. The files stay."""
        self._blocks.clear()

    def _remember(self, name: str, block: ByteRange, data: Array) -> Array:
        self._names.add(name)
        self._blocks[block] = data
        return data

    # Budget

    def _reserve(self, part: Path, nbytes: int) -> bool:
        with self._exclusive():
            used = self._read_used()
            if used + nbytes > self.budget_nbytes:
                self._used_nbytes = used
                return False
            with part.open("wb") as file:
                file.truncate(nbytes)
            self._write_used(used + nbytes)
        return True

    def _publish(self, part: Path, path: Path) -> None:
        """Rename a complete block, or delete it if another process was faster.

        Ranks on one host read the same blocks.
        """
        nbytes = part.stat().st_size
        with self._exclusive():
            if path.exists() and path.stat().st_size == nbytes:
                part.unlink()
                self._write_used(max(0, self._read_used() - nbytes))
            else:
                part.rename(path)

    def _delete(self, path: Path, nbytes: int) -> None:
        with suppress(OSError), self._exclusive():
            path.unlink()
            self._write_used(max(0, self._read_used() - nbytes))

    def _read_used(self) -> int:
        try:
            return int((self._folder / "used").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _write_used(self, nbytes: int) -> None:
        (self._folder / "used").write_text(str(nbytes))
        self._used_nbytes = nbytes

    def _scan_folder(self) -> int:
        """Record which blocks exist. Return the size of all files, including downloaded objects."""
        found = {path: path.stat().st_size for path in self._folder.rglob("*") if path.suffix != "" and path.is_file()}
        self._names = {path.name for path in found if path.suffix == ".block"}
        return sum(found.values())

    def _delete_stale_parts(self) -> None:
        for part in self._folder.glob("*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold a file lock against other processes and a lock against other threads."""
        with self._lock, (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Problems

    def _disable(self, error: OSError | ValueError) -> None:
        if not self._problem:
            self._problem = f"{self._folder}: {getattr(error, 'strerror', None) or error}"
            _log.warning("the disk cache is disabled; reading continues without it: %s", self._problem)

    def _delete_damaged(self, path: Path, stored: StoredObject) -> None:
        _log.warning("a cached block of %s is damaged; it is read from the store again", stored.url)
        self._names.discard(path.name)
        with suppress(OSError):
            self._delete(path, path.stat().st_size)


def _block_name(stored: StoredObject, block: ByteRange) -> str:
    text = f"{stored.url}\0{stored.version}\0{stored.nbytes}\0{block.start}-{block.stop}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.block"


def _write_block(part: Path, data: bytes) -> None:
    with part.open("r+b", buffering=0) as file:
        left = memoryview(data)
        while left:  # a disk that is nearly full writes a part first and fails at the next write
            left = left[file.write(left) :]
        file.write(zlib.crc32(data).to_bytes(_CHECKSUM_NBYTES))
