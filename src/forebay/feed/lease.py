"""The life of what is lent: how a slot learns that nobody can see its memory any more.

Every leaf of a slot has one root: the object through which alone the memory is ever handed out. Whatever the user
derives from it (views, views of views, tensors by DLPack, buffers) holds a reference to the root, directly or along
a chain, because a root's own base is not an ndarray and NumPy collapses chains only over ndarrays. So the memory is
unseen exactly when the reference counts of the roots are back where they were before anything was lent.

Counting instead of finalizers: the roots live as long as the slot, nothing is made or destroyed per batch, no callback
runs on a foreign thread, and a slot that is kept for good is simply forgotten; its memory goes with the last view.
"""

import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Lease"]


class Lease:
    """Tells whether anything but the slot itself still refers to its roots.

    The count at birth is the count of nobody: roots come by an iterator, so that no list of the caller's is counted.
    """

    __slots__ = ("_idle", "_roots")

    def __init__(self, roots: Iterator[Any]) -> None:
        self._roots = tuple(roots)
        self._idle = self._count()

    @property
    def ended(self) -> bool:
        return self._count() == self._idle

    def _count(self) -> int:
        return sum(map(sys.getrefcount, self._roots))
