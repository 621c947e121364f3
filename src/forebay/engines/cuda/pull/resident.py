"""Rows kept on the device: uploaded while batches flow, read from there as soon as they have arrived.

What is kept is a copy. An array that its owner changes afterwards is noticed by a sample of its bytes, taken when an
epoch begins: its rows cross again from then on, and `explain()` says so. A change too small to meet the sample is
missed: whoever changes single rows between epochs asks for resident="never".
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay.core.source import Extent
from forebay.core.spec import align
from forebay.engines.cuda.copy_plan import Extents, Place
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.row_mover import Mover

__all__ = ["Kept", "Sample"]

STEP_NBYTES = 256 << 20  # uploaded until rows are read from there
STEP_ROWS = 1 << 22  # rows that lie apart are copied one by one, and each takes some bytes to ask for
SAMPLED = 4096  # bytes looked at


class Kept:
    """The first rows of one leaf in device memory."""

    def __init__(self, engine: CudaEngine, far: Extents, *, rows: int) -> None:
        self._engine, self._far, self._rows = engine, far, min(rows, far.rows)
        self._pointer, self._owner = engine.allocate(align(max(1, self._rows * far.row_nbytes), 256))

    def upload(self, mover: Mover, seams: Any, *, show: Callable[[Extents], None], stopped: Callable[[], bool]) -> None:
        """Upload step by step; `show` is told after each where all rows are to be read from."""
        uploading, row_nbytes = self._engine.upload_stream(), self._far.row_nbytes
        step = max(1, min(STEP_NBYTES // row_nbytes, STEP_ROWS))
        for start in range(0, self._rows, step):
            if stopped():
                return
            stop = min(start + step, self._rows)
            with self._engine.device:
                place = Place(self._pointer + start * row_nbytes, stop, stop * row_nbytes, row_nbytes)
                mover.upload_run(uploading, self._far, slice(start, stop), place, seams)
                uploading.wait()
            show(self._with_near(stop))

    def _with_near(self, rows: int) -> Extents:
        """The first rows are read from the device, the others from where they were."""
        far = self._far
        near = np.array([[0, self._pointer, far.row_nbytes]], np.int64)
        if rows >= far.rows:
            return Extents.of(near, row_nbytes=far.row_nbytes, rows=far.rows, near=True)
        rest = far.table[max(0, int(np.searchsorted(far.table[:, 0], rows, side="right")) - 1) :].copy()
        rest[0, 0] = max(rest[0, 0], rows)
        return Extents.of(np.concatenate((near, rest)), row_nbytes=far.row_nbytes, rows=far.rows)


class Sample:
    """Some bytes of the rows of an array, to see whether it has changed."""

    def __init__(self, extents: Sequence[Extent], row_nbytes: int) -> None:
        self._rows = [_rows(extent, row_nbytes) for extent in extents if extent.writable]
        each = max(1, SAMPLED // max(1, len(self._rows)))
        rng = np.random.default_rng(0)
        self._chosen = [(rng.integers(0, len(rows), each), rng.integers(0, row_nbytes, each)) for rows in self._rows]
        self._before = self._look()

    def changed(self) -> bool:
        return not all(map(np.array_equal, self._before, self._look()))

    def _look(self) -> list[Any]:
        return [rows[chosen] for rows, chosen in zip(self._rows, self._chosen, strict=True)]


def _rows(extent: Extent, row_nbytes: int) -> Any:
    """The bytes of an extent, row by row, without what lies between rows."""
    nbytes = (extent.rows - 1) * extent.stride + row_nbytes
    held: Any = (ctypes.c_uint8 * nbytes).from_address(extent.address)
    return np.ndarray((extent.rows, row_nbytes), np.uint8, buffer=held, strides=(extent.stride, 1))
