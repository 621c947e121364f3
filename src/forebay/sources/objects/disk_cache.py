"""The cache tier on local disk: one file per block, in a shared folder.

A block is a byte range of an object. Its file ends with a checksum, which `load` verifies. The file name is a hash of
URL, version, object size and byte range, so blocks of a changed object get new names. If an object has no version, the
tier does not store its blocks, because it could not tell when they are out of date.

If the disk is full, or the folder cannot be created or written, the tier stores no more blocks and reports this in the
log and in `explain()`. It still returns the blocks that are in the folder. Forebay reads all other blocks from the
store.
"""

import hashlib
import logging
import os
import zlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.cache_folder import CacheFolder
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["DiskTier"]

_CHECKSUM_NBYTES = 4  # bytes of the CRC-32 at the end of each file

_log = logging.getLogger(__name__)


class DiskTier:
    """Caches blocks in a folder. The files stay when the process ends."""

    def __init__(self, folder: str | os.PathLike[str], budget_nbytes: int) -> None:
        self._folder, self.budget_nbytes = CacheFolder(folder, budget_nbytes), budget_nbytes
        self._blocks: dict[ByteRange, Array] = {}  # blocks that this process has mapped into memory
        # File names of the blocks in the folder.
        self._block_names = {name for name in self._folder.names() if name.endswith(".block")}

    @property
    def free_nbytes(self) -> int:
        return self._folder.free_nbytes

    def get_from_memory(self, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def contains(self, stored_object: StoredObject, block: ByteRange) -> bool:
        return block in self._blocks or _block_name(stored_object, block) in self._block_names

    def load(self, stored_object: StoredObject, block: ByteRange) -> Array | None:
        if not stored_object.version:
            return None
        name = _block_name(stored_object, block)
        file = self._folder.open(name)
        if file is None:
            return None
        with file:
            file_bytes = _map_file(file)
        data, checksum = file_bytes[:-_CHECKSUM_NBYTES], file_bytes[-_CHECKSUM_NBYTES:].tobytes()
        if data.nbytes != block.nbytes or zlib.crc32(data.data).to_bytes(_CHECKSUM_NBYTES) != checksum:
            self._delete_damaged(name, stored_object)
            return None
        return self._record_block(name, block, data)

    def put(self, stored_object: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        if not stored_object.version or len(data) + _CHECKSUM_NBYTES > self.free_nbytes:
            return None
        name = _block_name(stored_object, block)
        try:
            mapped_data = self._store(name, data)
        except (OSError, ValueError) as error:
            self._folder.stop_storing(error)
            return None
        if mapped_data is None:  # it does not fit, or another process has stored the block
            return self.load(stored_object, block)
        return self._record_block(name, block, mapped_data)

    def decisions(self) -> Sequence[Decision]:
        if self._folder.problem:
            return [Decision("disk tier", "read-only", f"{self._folder.problem}; no more blocks are stored")]
        budget = f"all processes share its budget of {format_nbytes(self.budget_nbytes)}"
        reason = f"in {self._folder.path}; {budget}; blocks are never evicted"
        return [Decision("disk tier", f"{format_nbytes(self._folder.used_nbytes)} cached", reason)]

    def close(self) -> None:
        """Unmap all blocks. The files stay."""
        self._blocks.clear()

    def _store(self, name: str, data: bytes) -> Array | None:
        """Write a block to the folder and return its mapped bytes.

        Return None if the block does not fit in the budget, or if another process has stored it.
        """
        unpublished = self._folder.reserve(len(data) + _CHECKSUM_NBYTES)
        if unpublished is None:
            return None
        try:
            unpublished.write(data)
            unpublished.write(zlib.crc32(data).to_bytes(_CHECKSUM_NBYTES))
            if not self._folder.publish(unpublished, name, replace=False):
                return None
            return np.asarray(np.memmap(unpublished.file, np.uint8, mode="r", shape=(len(data),)))
        except BaseException:
            self._folder.discard(unpublished)
            raise
        finally:
            unpublished.file.close()

    def _record_block(self, name: str, block: ByteRange, data: Array) -> Array:
        self._block_names.add(name)
        self._blocks[block] = data
        return data

    def _delete_damaged(self, name: str, stored_object: StoredObject) -> None:
        _log.warning("a cached block of %s is damaged; Forebay reads it from the store again", stored_object.url)
        self._block_names.discard(name)
        self._folder.delete(name)


def _block_name(stored_object: StoredObject, block: ByteRange) -> str:
    text = f"{stored_object.url}\0{stored_object.version}\0{stored_object.nbytes}\0{block.start}-{block.stop}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.block"


def _map_file(file: BinaryIO) -> Array:
    try:
        return np.asarray(np.memmap(file, np.uint8, mode="r"))
    except (OSError, ValueError):  # unreadable or empty
        return np.empty(0, np.uint8)
