"""Counts the items of lists that one call of a framework, such as `torch.tensor(list)`, joins into one array."""

from typing import Any

import numpy as np

__all__ = ["count_pieces", "first_leaf", "pieces_detail"]

# Exact types of NumPy arrays and scalars. Of the subclasses, only `np.memmap` counts.
_HOST_TYPES = frozenset({np.ndarray, np.memmap, *np.sctypeDict.values()})


def count_pieces(data: Any) -> int:
    """Return the number of NumPy arrays and scalars in a list or tuple.

    Return 0 if there are fewer than two, if they differ in their dtype, or if there is any other value.
    """
    if type(data) not in (list, tuple) or len(data) < 2 or not _HOST_TYPES.issuperset(map(type, data)):
        return 0
    return len(data) if len({array.dtype for array in data}) == 1 else 0  # NumPy may convert arrays of several dtypes


def pieces_detail(data: Any) -> dict[str, int]:
    """Return the detail `pieces` of an upload event; {} if `count_pieces` returns 0."""
    pieces = count_pieces(data)
    return {"pieces": pieces} if pieces else {}


def first_leaf(data: Any) -> Any:
    """Follow the first items of nested lists and tuples, and return the first value that is no list or tuple.

    Return an empty list or tuple if it comes first.
    """
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data
