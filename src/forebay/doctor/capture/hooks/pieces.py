"""Lists of NumPy arrays that one call of a framework joins to an array."""

from typing import Any

import numpy as np

__all__ = ["count_pieces", "pieces_detail"]

# `type(value)` of host arrays. Subclasses do not count, except `np.memmap`.
_HOST_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})


def count_pieces(data: Any) -> int:
    """Return the number of NumPy arrays of one dtype in a list or tuple; 0 for fewer than two, or anything else."""
    if type(data) not in (list, tuple) or len(data) < 2 or not _HOST_TYPES.issuperset(map(type, data)):
        return 0
    return len(data) if len({array.dtype for array in data}) == 1 else 0  # NumPy may join other dtypes to another one


def pieces_detail(data: Any) -> dict[str, int]:
    """Return the key `pieces` of an upload event; empty if the data is not a list of NumPy arrays."""
    pieces = count_pieces(data)
    return {"pieces": pieces} if pieces else {}
