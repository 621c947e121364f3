"""Copies of rows from a read buffer to their positions in a batch."""

import numpy as np

from forebay.core.spec import Array
from forebay.sources.direct.address_space import Addresses

__all__ = ["copy_rows", "copy_strided"]

_TEMPORARY_NBYTES = 256 << 10  # bytes; temporary arrays up to this size stay in the cache of a core
_LOOP_NBYTES = 16 << 10  # bytes; larger rows are copied one by one, without a temporary array
_MIN_UNIT_NBYTES = 64  # bytes; with smaller units, building the index array costs more than `take` saves


def copy_rows(buffer: Array, offsets: Addresses, out: Array) -> None:
    """Write the row that begins at `offsets[i]` of the buffer to `out[i]`."""
    row_nbytes = out.nbytes // len(out)
    target = out.reshape(-1).view(f"V{row_nbytes}")
    if row_nbytes >= _LOOP_NBYTES:
        return _copy_each(buffer, offsets, target.view(np.uint8).reshape(len(out), row_nbytes))
    unit_nbytes = _unit_nbytes(offsets, row_nbytes)
    if unit_nbytes >= _MIN_UNIT_NBYTES or unit_nbytes == row_nbytes:
        return _take_units(buffer, offsets, unit_nbytes, target)
    # Rows may begin at any byte, so make an overlapping view with one row per byte and index it by offset.
    rows = np.ndarray((buffer.nbytes - row_nbytes + 1,), target.dtype, buffer, strides=(1,))
    step = max(1, _TEMPORARY_NBYTES // row_nbytes)
    for start in range(0, len(out), step):
        target[start : start + step] = rows[offsets[start : start + step]]
    return None


def copy_strided(buffer: Array, offset: int, stride: int, out: Array) -> None:
    """Write rows at a constant stride, from `offset` of the buffer on, to `out`."""
    row = np.dtype(f"V{out.nbytes // len(out)}")
    out.reshape(-1).view(row)[...] = np.ndarray((len(out),), row, buffer, offset, (stride,))


def _copy_each(buffer: Array, offsets: Addresses, target: Array) -> None:
    row_nbytes = target.shape[1]
    for row, offset in zip(target, offsets.tolist(), strict=True):
        row[...] = buffer[offset : offset + row_nbytes]


def _unit_nbytes(offsets: Addresses, row_nbytes: int) -> int:
    """Return the largest size that divides the row size and all row distances.

    If the buffer is viewed as items of this size, every row is a whole number of items.
    """
    return int(np.gcd.reduce(offsets - offsets[0], initial=row_nbytes))


def _take_units(buffer: Array, offsets: Addresses, unit_nbytes: int, target: Array) -> None:
    """Copy rows unit by unit with `take`.

    `take` releases the GIL; indexing with an array does not.
    """
    phase, units = int(offsets[0]) % unit_nbytes, target.dtype.itemsize // unit_nbytes
    unit = np.dtype(f"V{unit_nbytes}")
    all_units = np.ndarray(((buffer.nbytes - phase) // unit_nbytes,), unit, buffer, phase)
    numbers = (offsets - phase)[:, None] // unit_nbytes + np.arange(units)
    # mode="clip" lets take() write to `out` directly; the default mode writes to a temporary array first.
    all_units.take(numbers.reshape(-1), out=target.view(unit), mode="clip")
