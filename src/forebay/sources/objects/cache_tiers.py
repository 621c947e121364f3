"""What a tier is, and the one in RAM: blocks that are held for good, up to a number of bytes."""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from forebay.core.decision import Reason
from forebay.core.spec import Array, format_nbytes
from forebay.sources.objects.stored_object import Piece, StoredObject

__all__ = ["RamTier", "Tier"]


class Tier(Protocol):
    """Holds blocks and never lets go of one; safe from any thread."""

    budget_nbytes: int

    @property
    def room_nbytes(self) -> int:
        """How much more it may hold."""
        ...

    def ready(self, piece: Piece) -> Array | None:
        """The bytes of a block, if they are at hand in this process: a lookup and no more."""
        ...

    def has(self, stored: StoredObject, piece: Piece) -> bool:
        """Whether `find` would find a block, as far as the tier knows."""
        ...

    def find(self, stored: StoredObject, piece: Piece) -> Array | None:
        """The bytes of a block, if the tier has them; may read a disk."""
        ...

    def keep(self, stored: StoredObject, piece: Piece, data: bytes) -> Array | None:
        """Hold a block from now on; None where there is no room for it."""
        ...

    def reasons(self) -> Sequence[Reason]: ...
    def close(self) -> None: ...


class RamTier:
    """Blocks in memory, gone with the process."""

    def __init__(self, budget_nbytes: int) -> None:
        self.budget_nbytes, self._nbytes = budget_nbytes, 0
        self._blocks: dict[Piece, Array] = {}
        self._lock = threading.Lock()

    @property
    def room_nbytes(self) -> int:
        return self.budget_nbytes - self._nbytes

    def ready(self, piece: Piece) -> Array | None:
        return self._blocks.get(piece)

    def has(self, stored: StoredObject, piece: Piece) -> bool:
        return piece in self._blocks

    def find(self, stored: StoredObject, piece: Piece) -> Array | None:
        return self._blocks.get(piece)

    def keep(self, stored: StoredObject, piece: Piece, data: bytes) -> Array | None:
        with self._lock:
            if self._nbytes + len(data) > self.budget_nbytes:
                return None
            self._nbytes += len(data)
            self._blocks[piece] = np.frombuffer(data, np.uint8)
            return self._blocks[piece]

    def reasons(self) -> Sequence[Reason]:
        told = f"of {format_nbytes(self.budget_nbytes)} that may be; never evicted, gone with the process"
        return [Reason("RAM tier", f"{format_nbytes(self._nbytes)} held", told)]

    def close(self) -> None:
        """Let go of every block."""
        self._blocks.clear()
