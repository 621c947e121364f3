"""The cache tier on local disk: one file per block, in a shared folder.

To store a block, a process takes a lock, adds the size of the block to the number in the file `used`, and creates a
temporary file of the full length. This reserves the bytes in the budget that all processes share. The process then
releases the lock, writes the block and renames the file. The file ends with a checksum, which `load` verifies. The file
name is a hash of URL, version, object size and byte range, so blocks of a changed object get new names. Blocks of an
object without a version are not stored.

If the disk is full, or the folder cannot be created or written, the tier stores no more blocks and reports this in the
log and in `explain()`. It still serves the blocks that are in the folder. Forebay reads all others from the store.
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

_CHECKSUM_NBYTES = 4  # bytes of the CRC-32 at the end of each file
_STALE_SECONDS = 3600  # Forebay assumes that the writer of a temporary file has died after an hour without a change

_log = logging.getLogger(__name__)


class DiskTier:
    """Caches blocks in a folder. The files stay when the process ends."""

    def __init__(self, folder: str | os.PathLike[str], budget_nbytes: int) -> None:
        self._folder, self.budget_nbytes = Path(folder).expanduser(), budget_nbytes
        self._blocks: dict[ByteRange, Array] = {}  # blocks that this process has mapped into memory
        self._block_names: set[str] = set()  # file names of the blocks in the folder
        self._used_nbytes = 0  # bytes of all processes, as this process last read or wrote them in the file "used"
        self._problem = ""  # why the tier stores no more blocks; "" while it stores blocks
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._hold_locks():
                self._delete_stale_parts()
                self._write_used_nbytes(self._scan_folder())
        except OSError as error:
            self._stop_storing(error)

    @property
    def free_nbytes(self) -> int:
        return 0 if self._problem else max(0, self.budget_nbytes - self._used_nbytes)

    def get(self, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def contains(self, stored_object: StoredObject, block: ByteRange) -> bool:
        return block in self._blocks or _block_name(stored_object, block) in self._block_names

    def load(self, stored_object: StoredObject, block: ByteRange) -> Array | None:
        if not stored_object.version:
            return None
        path = self._folder / _block_name(stored_object, block)
        try:
            file_bytes = np.memmap(path, np.uint8, mode="r")
        except (OSError, ValueError):  # missing, unreadable or empty; the caller tries the next tier, then the store
            return None
        data, checksum = np.asarray(file_bytes[:-_CHECKSUM_NBYTES]), file_bytes[-_CHECKSUM_NBYTES:].tobytes()
        if data.nbytes != block.nbytes or zlib.crc32(data.data).to_bytes(_CHECKSUM_NBYTES) != checksum:
            self._delete_damaged(path, stored_object)
            return None
        return self._record_block(path.name, block, data)

    def put(self, stored_object: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        if not stored_object.version or len(data) + _CHECKSUM_NBYTES > self.free_nbytes:
            return None
        path = self._folder / _block_name(stored_object, block)
        part_path = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            if not self._reserve(part_path, len(data) + _CHECKSUM_NBYTES):
                return None
            _write_block(part_path, data)
            self._publish(part_path, path)
            mapped_data = np.asarray(np.memmap(path, np.uint8, mode="r", shape=(len(data),)))
        except (OSError, ValueError) as error:
            self._delete(part_path, len(data) + _CHECKSUM_NBYTES)
            self._stop_storing(error)
            return None
        return self._record_block(path.name, block, mapped_data)

    def decisions(self) -> Sequence[Decision]:
        if self._problem:
            return [Decision("disk tier", "read-only", f"{self._problem}; no more blocks are stored")]
        budget = format_nbytes(self.budget_nbytes)
        reason = f"in {self._folder}, of a budget of {budget} that all processes share; blocks are never evicted"
        return [Decision("disk tier", f"{format_nbytes(self._used_nbytes)} held", reason)]

    def close(self) -> None:
        """Unmap all blocks. The files stay."""
        self._blocks.clear()

    def _record_block(self, name: str, block: ByteRange, data: Array) -> Array:
        self._block_names.add(name)
        self._blocks[block] = data
        return data

    # Budget

    def _reserve(self, part_path: Path, nbytes: int) -> bool:
        with self._hold_locks():
            used_nbytes = self._read_used_nbytes()
            if used_nbytes + nbytes > self.budget_nbytes:
                self._used_nbytes = used_nbytes
                return False
            with part_path.open("wb") as file:
                file.truncate(nbytes)
            self._write_used_nbytes(used_nbytes + nbytes)
        return True

    def _publish(self, part_path: Path, path: Path) -> None:
        """Rename the temporary file of a complete block.

        Delete it instead if another process has stored the block, such as another rank on this host.
        """
        nbytes = part_path.stat().st_size
        with self._hold_locks():
            if path.exists() and path.stat().st_size == nbytes:
                part_path.unlink()
                self._write_used_nbytes(max(0, self._read_used_nbytes() - nbytes))
            else:
                part_path.rename(path)

    def _delete(self, path: Path, nbytes: int) -> None:
        with suppress(OSError), self._hold_locks():
            path.unlink()
            self._write_used_nbytes(max(0, self._read_used_nbytes() - nbytes))

    def _read_used_nbytes(self) -> int:
        try:
            return int((self._folder / "used").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _write_used_nbytes(self, nbytes: int) -> None:
        (self._folder / "used").write_text(str(nbytes))
        self._used_nbytes = nbytes

    def _scan_folder(self) -> int:
        """Record the names of the block files. Return the bytes of all files with a suffix.

        This includes downloaded objects and excludes the files `used` and `lock`, which have no suffix.
        """
        sizes = {path: path.stat().st_size for path in self._folder.rglob("*") if path.suffix != "" and path.is_file()}
        self._block_names = {path.name for path in sizes if path.suffix == ".block"}
        return sum(sizes.values())

    def _delete_stale_parts(self) -> None:
        for part_path in self._folder.glob("*.part"):
            with suppress(OSError):
                if time.time() - part_path.stat().st_mtime > _STALE_SECONDS:
                    part_path.unlink()

    @contextmanager
    def _hold_locks(self) -> Iterator[None]:
        """Lock out other threads and, with a file lock, other processes."""
        with self._lock, (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Failures

    def _stop_storing(self, error: OSError | ValueError) -> None:
        if not self._problem:
            self._problem = f"{self._folder}: {getattr(error, 'strerror', None) or error}"
            _log.warning("the disk cache stores no more blocks; reading continues: %s", self._problem)

    def _delete_damaged(self, path: Path, stored_object: StoredObject) -> None:
        _log.warning("a cached block of %s is damaged; Forebay reads it from the store again", stored_object.url)
        self._block_names.discard(path.name)
        with suppress(OSError):
            self._delete(path, path.stat().st_size)


def _block_name(stored_object: StoredObject, block: ByteRange) -> str:
    text = f"{stored_object.url}\0{stored_object.version}\0{stored_object.nbytes}\0{block.start}-{block.stop}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.block"


def _write_block(part_path: Path, data: bytes) -> None:
    with part_path.open("r+b", buffering=0) as file:
        remaining = memoryview(data)
        while remaining:  # on a nearly full disk, write() may write only some of the bytes
            remaining = remaining[file.write(remaining) :]
        file.write(zlib.crc32(data).to_bytes(_CHECKSUM_NBYTES))
