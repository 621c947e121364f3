"""Functions that copy rows from a read buffer to their positions in a batch."""

import numpy as np

from forebay.core.spec import Array
from forebay.sources.direct.address_space import Integers

__all__ = ["copy_rows", "copy_strided"]

_TEMPORARY_NBYTES = 256 << 10  # bytes; temporary arrays up to this size stay in the cache of a core
_LARGE_ROW_NBYTES = 16 << 10  # bytes; rows of this size or more are copied one by one, without a temporary array
# Bytes. A unit divides the row size and all distances between rows. `take` can copy rows as whole units. For smaller
# units, making the array of unit numbers takes more time than `take` saves.
_MIN_UNIT_NBYTES = 64


def copy_rows(buffer: Array, offsets: Integers, out: Array) -> None:
    """Write the row that begins at `offsets[i]` of the buffer to `out[i]`."""
    row_nbytes = out.nbytes // len(out)
    target = out.reshape(-1).view(f"V{row_nbytes}")
    if row_nbytes >= _LARGE_ROW_NBYTES:
        return _copy_one_by_one(buffer, offsets, target.view(np.uint8).reshape(len(out), row_nbytes))
    unit_nbytes = _unit_nbytes(offsets, row_nbytes)
    if unit_nbytes >= _MIN_UNIT_NBYTES or unit_nbytes == row_nbytes:
        return _take_units(buffer, offsets, unit_nbytes, target)
    # Rows may begin at any byte. View the buffer as overlapping rows, one at each byte, and index them by offset.
    rows = np.ndarray((buffer.nbytes - row_nbytes + 1,), target.dtype, buffer, strides=(1,))
    step = max(1, _TEMPORARY_NBYTES // row_nbytes)
    for start in range(0, len(out), step):
        target[start : start + step] = rows[offsets[start : start + step]]
    return None


def copy_strided(buffer: Array, offset: int, stride: int, out: Array) -> None:
    """Copy rows at a constant stride to `out`. The first row begins at `offset`."""
    row = np.dtype(f"V{out.nbytes // len(out)}")
    out.reshape(-1).view(row)[...] = np.ndarray((len(out),), row, buffer, offset, (stride,))


def _copy_one_by_one(buffer: Array, offsets: Integers, target: Array) -> None:
    row_nbytes = target.shape[1]
    for row, offset in zip(target, offsets.tolist(), strict=True):
        row[...] = buffer[offset : offset + row_nbytes]


def _unit_nbytes(offsets: Integers, row_nbytes: int) -> int:
    """Return the largest unit in bytes: it divides the row size and all row distances.

    In a view of the buffer with items of this size, every row is a whole number of items.
    """
    return int(np.gcd.reduce(offsets - offsets[0], initial=row_nbytes))


def _take_units(buffer: Array, offsets: Integers, unit_nbytes: int, target: Array) -> None:
    """Copy rows unit by unit with `take`.

    `take` releases the GIL; indexing with an array does not.
    """
    first_unit_offset, row_units = int(offsets[0]) % unit_nbytes, target.dtype.itemsize // unit_nbytes
    unit = np.dtype(f"V{unit_nbytes}")
    units = np.ndarray(((buffer.nbytes - first_unit_offset) // unit_nbytes,), unit, buffer, first_unit_offset)
    unit_numbers = (offsets - first_unit_offset)[:, None] // unit_nbytes + np.arange(row_units)
    # With mode="clip", `take` writes to `out` directly. With the default mode, it writes to a temporary array first.
    units.take(unit_numbers.reshape(-1), out=target.view(unit), mode="clip")
