"""The interface of cache tiers, and the cache tier in RAM."""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["CacheTier", "RamTier"]


class CacheTier(Protocol):
    """Caches blocks up to a budget and never evicts a block.

    A block is a byte range of one object, which `RangeReader` reads with one request. The methods are thread-safe.
    """

    budget_nbytes: int

    @property
    def free_nbytes(self) -> int:
        """Bytes that the tier can still store."""
        ...

    def get_from_memory(self, block: ByteRange) -> Array | None:
        """Return the bytes of a block that this process has stored or loaded, or None.

        Unlike `load`, this method never reads from disk.
        """
        ...

    def contains(self, stored_object: StoredObject, block: ByteRange) -> bool:
        """Return whether the tier has a block, without reading from disk.

        The answer may be out of date: another process may have added or deleted the block in the meantime.
        """
        ...

    def load(self, stored_object: StoredObject, block: ByteRange) -> Array | None:
        """Return the bytes of a block, or None if the tier does not have it.

        A tier on disk opens the file of the block and verifies its checksum.
        """
        ...

    def put(self, stored_object: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        """Store a block and return the stored bytes.

        Return None if the block does not fit in `free_nbytes` or cannot be stored.
        """
        ...

    def decisions(self) -> Sequence[Decision]:
        """Describe the state of the tier for `explain()`."""
        ...

    def close(self) -> None:
        """Release the memory of all blocks."""
        ...


class RamTier:
    """Caches blocks in memory until the source is closed."""

    def __init__(self, budget_nbytes: int) -> None:
        self.budget_nbytes, self._nbytes = budget_nbytes, 0
        self._blocks: dict[ByteRange, Array] = {}
        self._lock = threading.Lock()

    @property
    def free_nbytes(self) -> int:
        return self.budget_nbytes - self._nbytes

    def get_from_memory(self, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def contains(self, stored_object: StoredObject, block: ByteRange) -> bool:
        return block in self._blocks

    def load(self, stored_object: StoredObject, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def put(self, stored_object: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        with self._lock:
            if self._nbytes + len(data) > self.budget_nbytes:
                return None
            self._nbytes += len(data)
            self._blocks[block] = np.frombuffer(data, np.uint8)
            return self._blocks[block]

    def decisions(self) -> Sequence[Decision]:
        reason = f"the budget is {format_nbytes(self.budget_nbytes)}; blocks are never evicted"
        return [Decision("RAM tier", f"{format_nbytes(self._nbytes)} cached", reason)]

    def close(self) -> None:
        self._blocks.clear()
