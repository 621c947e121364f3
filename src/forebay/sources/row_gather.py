"""`RowGather`: copies rows with given numbers to an array by one call of C (`gather_rows.c`).

`take` of NumPy needs one array whose rows have no gaps. The C function also gathers rows of several arrays, and rows
that overlap, such as windows. It copies each row once. It prefetches rows into the CPU caches. So for rows of 64 bytes
to 2 KiB, it takes 0.71 to 0.96 of the CPU time of `take` (docs/measurements.md#gathering-rows-in-c).

If Forebay was installed from the pure wheel or without a compiler, the C library is missing, and the callers of this
module use NumPy.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.c_functions import address_of, load_function
from forebay.core.source import MemoryExtent
from forebay.core.spec import Array

__all__ = ["RowGather", "load_library"]

_LIBRARY_FILE = Path(__file__).with_name("gather_rows.so")  # built with the wheel


def load_library() -> Any:
    """Return the C function, or None if its library was not compiled."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return load_function(_LIBRARY_FILE, "forebay_gather_rows", pointer, number, pointer, number, pointer, number)


class RowGather:
    """Gathers rows of arrays in memory, and keeps the arrays alive."""

    def __init__(self, extents: Sequence[MemoryExtent], row_nbytes: int, arrays: Sequence[Array]) -> None:
        """Store the extents for the C function.

        Args:
            extents: Where the rows are. They are sorted by their first row, and together have all rows from 0 on.
            row_nbytes: Bytes of a row.
            arrays: The arrays that own the memory of the extents.
        """
        self._row_nbytes, self._arrays = row_nbytes, tuple(arrays)
        parts = [
            (extent.first + extent.rows, extent.address - extent.first * extent.stride, extent.stride)
            for extent in extents
            if extent.rows
        ]
        self._parts = np.asarray(parts, np.int64).reshape(-1, 3)
        self._parts_address, self._gather = address_of(self._parts), load_library()

    def __call__(self, rows: Array, out: Array) -> None:
        """Write row `rows[i]` to `out[i]`. `out` must be C-ordered."""
        flags, count = out.flags, len(rows)
        if not (flags.c_contiguous and flags.writeable) or out.nbytes != count * self._row_nbytes:
            raise ValueError(
                f"{count} rows of {self._row_nbytes} bytes do not fit into `out`, which has {out.nbytes} bytes. Pass a "
                "writable, C-ordered array of their size."
            )
        numbers = np.ascontiguousarray(rows, np.int64)
        targets = address_of(out), self._row_nbytes, address_of(numbers), count
        gathered = self._gather(*targets, self._parts_address, len(self._parts))
        if gathered != count:
            raise IndexError(f"there is no row {numbers[gathered]}. Pass row numbers of the arrays.")

    def __reduce__(self) -> Any:
        raise TypeError("a RowGather holds memory addresses of this process. Pickle the arrays instead.")
