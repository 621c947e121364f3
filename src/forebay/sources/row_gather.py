"""Gathers of rows by one call of a small C function (`gather_rows.c`).

`take` of NumPy needs one array whose rows have no gaps. The C function also gathers rows of several arrays, and rows
that overlap, such as windows. It copies each row once. It prefetches rows into the CPU caches, so it takes less time
than `take` for rows of 64 bytes to 8 KiB (docs/measurements.md#gathering-rows-in-c).

The pure wheel, and an installation without a compiler, lack the library. The callers then use NumPy.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.source import MemoryExtent
from forebay.core.spec import Array
from forebay.sources.c_functions import address_of, load_function

__all__ = ["RowGather", "load_library"]

_LIBRARY_FILE = Path(__file__).with_name("gather_rows.so")  # built with the wheel


def load_library() -> Any:
    """Return the C function, or None without a compiled library."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return load_function(_LIBRARY_FILE, "forebay_gather_rows", pointer, number, pointer, number, pointer, number)


class RowGather:
    """Gathers rows of arrays in memory. It keeps the arrays alive."""

    def __init__(self, extents: Sequence[MemoryExtent], row_nbytes: int, arrays: Sequence[Array]) -> None:
        """`extents` are sorted by their first row, and together have all rows from 0 on."""
        self._row_nbytes, self._arrays = row_nbytes, tuple(arrays)
        parts = [
            (extent.first + extent.rows, extent.address - extent.first * extent.stride, extent.stride)
            for extent in extents
            if extent.rows
        ]
        self._parts = np.asarray(parts, np.int64).reshape(-1, 3)
        self._parts_address, self._gather = address_of(self._parts), load_library()

    def __call__(self, rows: Array, out: Array) -> None:
        """Write row `rows[i]` to `out[i]`. `out` is C-ordered."""
        flags, count = out.flags, len(rows)
        if not (flags.c_contiguous and flags.writeable) or out.nbytes != count * self._row_nbytes:
            raise ValueError(f"{count} rows of {self._row_nbytes} bytes do not fit into these {out.nbytes} bytes.")
        numbers = np.ascontiguousarray(rows, np.int64)
        targets = address_of(out), self._row_nbytes, address_of(numbers), count
        gathered = self._gather(*targets, self._parts_address, len(self._parts))
        if gathered != count:
            raise IndexError(f"there is no row {numbers[gathered]}.")

    def __reduce__(self) -> Any:
        raise TypeError("a RowGather has addresses of this process. Pickle the arrays, and make it again.")
