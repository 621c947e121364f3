"""Leases: how a slot learns that the consumer holds no batch of it any more.

Each leaf of a slot has one root, the only object through which its memory is handed out. All that the user derives
from it (views, views of views, DLPack tensors, buffers) holds a reference to the root, directly or through a chain: a
root's base is not an ndarray, and NumPy shortens chains only over ndarrays. So the memory is released exactly when the
reference counts of the roots are back to their values before the hand-out.

Counting has advantages over finalizers. Roots live as long as the slot, so no object is created or destroyed per
batch. No callback runs on another thread. A slot that the consumer keeps forever is simply dropped, and its memory is
freed with the last view.
"""

import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Lease"]


class Lease:
    """Tells whether anything except the slot still refers to its roots.

    Create it before the roots are handed out. They come from an iterator, so that no list of the caller counts.
    """

    __slots__ = ("_idle_count", "_roots")

    def __init__(self, roots: Iterator[Any]) -> None:
        self._roots = tuple(roots)
        self._idle_count = self._count()

    @property
    def released(self) -> bool:
        """True if only the slot refers to the roots."""
        return self._count() == self._idle_count

    def _count(self) -> int:
        return sum(map(sys.getrefcount, self._roots))
