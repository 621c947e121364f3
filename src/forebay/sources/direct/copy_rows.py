"""Rows from memory that was read into, wherever in it they lie, to their places in a batch."""

import numpy as np

from forebay.core.spec import Array
from forebay.sources.direct.address_space import Addresses

__all__ = ["copy_piece", "copy_rows"]

_PIECE_NBYTES = 256 << 10  # temporaries up to this stay in a core's own cache
_LOOP_NBYTES = 16 << 10  # rows from this size on are copied one by one, without a temporary
_UNIT_NBYTES = 64  # rows are copied in units from this size on; of smaller ones there are too many


def copy_rows(memory: Array, places: Addresses, out: Array) -> None:
    """Write the row that begins at byte `places[i]` of the memory to `out[i]`."""
    row_nbytes = out.nbytes // len(out)
    target = out.reshape(-1).view(f"V{row_nbytes}")
    if row_nbytes >= _LOOP_NBYTES:
        return _copy_each(memory, places, target.view(np.uint8).reshape(len(out), row_nbytes))
    unit_nbytes = _unit_nbytes(places, row_nbytes)
    if unit_nbytes >= _UNIT_NBYTES or unit_nbytes == row_nbytes:
        return _take(memory, places, unit_nbytes, target)
    # Every byte is the beginning of a row: those that are meant are chosen.
    rows = np.ndarray((memory.nbytes - row_nbytes + 1,), target.dtype, memory, strides=(1,))
    step = max(1, _PIECE_NBYTES // row_nbytes)
    for start in range(0, len(out), step):
        target[start : start + step] = rows[places[start : start + step]]
    return None


def copy_piece(memory: Array, place: int, stride: int, out: Array) -> None:
    """Write rows that lie at equal distances from `place` on."""
    row = np.dtype(f"V{out.nbytes // len(out)}")
    out.reshape(-1).view(row)[...] = np.ndarray((len(out),), row, memory, place, (stride,))


def _copy_each(memory: Array, places: Addresses, target: Array) -> None:
    row_nbytes = target.shape[1]
    for row, place in zip(target, places.tolist(), strict=True):
        row[...] = memory[place : place + row_nbytes]


def _unit_nbytes(places: Addresses, row_nbytes: int) -> int:
    """The largest unit that rows are made of and that lies at multiples of its size, counted from the first row."""
    return int(np.gcd.reduce(places - places[0], initial=row_nbytes))


def _take(memory: Array, places: Addresses, unit_nbytes: int, target: Array) -> None:
    """By units: `take` lets other threads run meanwhile, which choosing by an array of numbers does not."""
    phase, units = int(places[0]) % unit_nbytes, target.dtype.itemsize // unit_nbytes
    unit = np.dtype(f"V{unit_nbytes}")
    all_units = np.ndarray(((memory.nbytes - phase) // unit_nbytes,), unit, memory, phase)
    numbers = (places - phase)[:, None] // unit_nbytes + np.arange(units)
    # Without "clip", take writes into a buffer of its own first.
    all_units.take(numbers.reshape(-1), out=target.view(unit), mode="clip")
