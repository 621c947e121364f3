"""Lists of NumPy arrays that one call of a framework joins to an array."""

from typing import Any

import numpy as np

__all__ = ["count_pieces", "pieces_detail"]

# `type(value)` of host arrays. Subclasses do not count, except `np.memmap`.
_HOST_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})


def count_pieces(data: Any) -> int:
    """Return the number of NumPy arrays in a list or tuple; 0 if it has fewer than two, or anything else."""
    if type(data) not in (list, tuple) or len(data) < 2:
        return 0
    return len(data) if _HOST_TYPES.issuperset(map(type, data)) else 0


def pieces_detail(data: Any) -> dict[str, int]:
    """Return the key `pieces` of an upload event; empty if the data is not a list of NumPy arrays."""
    pieces = count_pieces(data)
    return {"pieces": pieces} if pieces else {}
