"""Cache tiers: the interface, and the tier in RAM."""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["CacheTier", "RamTier"]


class CacheTier(Protocol):
    """Holds blocks up to a budget and never evicts one.

    Any thread may call the methods.
    """

    budget_nbytes: int

    @property
    def free_nbytes(self) -> int:
        """Bytes that the tier may still take."""
        ...

    def get(self, block: ByteRange) -> Array | None:
        """Return the bytes of a block if this process has loaded them.

        This is only a dictionary lookup, unlike `load`.
        """
        ...

    def contains(self, stored: StoredObject, block: ByteRange) -> bool:
        """Return whether `load` would find a block, as far as the tier knows."""
        ...

    def load(self, stored: StoredObject, block: ByteRange) -> Array | None:
        """Return the bytes of a block if the tier has them.

        This may read from disk.
        """
        ...

    def put(self, stored: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        """Store a block and return its bytes, or None without room."""
        ...

    def decisions(self) -> Sequence[Decision]:
        """Return the state of the tier, for `explain()`."""
        ...

    def close(self) -> None:
        """Release the memory of the tier."""
        ...


class RamTier:
    """Blocks in memory, until the source is closed."""

    def __init__(self, budget_nbytes: int) -> None:
        self.budget_nbytes, self._nbytes = budget_nbytes, 0
        self._blocks: dict[ByteRange, Array] = {}
        self._lock = threading.Lock()

    @property
    def free_nbytes(self) -> int:
        return self.budget_nbytes - self._nbytes

    def get(self, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def contains(self, stored: StoredObject, block: ByteRange) -> bool:
        return block in self._blocks

    def load(self, stored: StoredObject, block: ByteRange) -> Array | None:
        return self._blocks.get(block)

    def put(self, stored: StoredObject, block: ByteRange, data: bytes) -> Array | None:
        with self._lock:
            if self._nbytes + len(data) > self.budget_nbytes:
                return None
            self._nbytes += len(data)
            self._blocks[block] = np.frombuffer(data, np.uint8)
            return self._blocks[block]

    def decisions(self) -> Sequence[Decision]:
        why = f"of a budget of {format_nbytes(self.budget_nbytes)}; blocks are never evicted"
        return [Decision("RAM tier", f"{format_nbytes(self._nbytes)} held", why)]

    def close(self) -> None:
        self._blocks.clear()
