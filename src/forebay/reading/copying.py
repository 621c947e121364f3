"""Rows from memory that was read into, wherever in it they lie, to their places in a batch."""

import numpy as np

from forebay.reading.space import Addresses
from forebay.spec import Array

__all__ = ["copy_piece", "copy_rows"]

_PIECE_NBYTES = 256 << 10  # temporaries up to this stay in a core's own cache
_LOOP_NBYTES = 16 << 10  # rows from this size on are copied one by one, without a temporary


def copy_rows(memory: Array, places: Addresses, out: Array) -> None:
    """Write the row that begins at byte `places[i]` of the memory to `out[i]`."""
    row_nbytes = out.nbytes // len(out)
    target = out.reshape(-1).view(f"V{row_nbytes}")
    if row_nbytes >= _LOOP_NBYTES:
        return _copy_each(memory, places, target.view(np.uint8).reshape(len(out), row_nbytes))
    phase = int(places[0]) % row_nbytes
    if not ((places - phase) % row_nbytes).any():
        return _take(memory, places // row_nbytes, phase, target)
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


def _take(memory: Array, numbers: Addresses, phase: int, target: Array) -> None:
    count = (memory.nbytes - phase) // target.dtype.itemsize
    rows = np.ndarray((count,), target.dtype, memory, phase)
    rows.take(numbers, out=target, mode="clip")  # without "clip", take writes into a buffer of its own first
