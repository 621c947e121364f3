"""Resident rows, which Forebay uploads in the background while the feed returns batches.

Resident rows are a copy of the user's array. At the start of each pass, Forebay compares a sample of the array's bytes
with the same bytes before the upload. If they differ, the device pulls the rows from the host again, and `explain()`
reports this. Forebay does not notice a change outside of the sample, so users who change single rows between epochs
must pass resident="never".
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.source import MemoryExtent
from forebay.core.spec import align, format_nbytes
from forebay.engines.cuda.copy_plan import Destination, RowExtents
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.row_mover import RowMover

__all__ = ["ChangeSample", "ResidentRows"]

STEP_NBYTES = 256 << 20  # bytes per upload step; after each step, fills use the uploaded rows
STEP_ROWS = 1 << 22  # rows per upload step; limits the list of copies, because rows with gaps need one copy each
SAMPLE_NBYTES = 4096  # number of bytes that a `ChangeSample` compares, divided among the extents of a leaf


class ResidentRows:
    """Device memory for the first rows of one leaf.

    Rows that overlap on the host also overlap on the device. The extents that `upload` publishes keep the memory
    allocated.
    """

    def __init__(self, engine: CudaEngine, host_extents: RowExtents, *, rows: int) -> None:
        self._engine, self._host_extents, self._rows = engine, host_extents, min(rows, host_extents.rows)
        self._stride = host_extents.copied_row_nbytes
        nbytes = max(0, self._rows - 1) * self._stride + host_extents.row_nbytes
        self._pointer, self._owner = engine.allocate(align(max(1, nbytes), 256))

    def upload(
        self,
        mover: RowMover,
        boundaries: Any,
        *,
        publish: Callable[[RowExtents], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Upload the rows in steps.

        `boundaries` are addresses where page-locked ranges begin or end. No copy may cross such an address. After each
        step, call `publish` with the new addresses of all rows. Stop early if `is_stopped` returns True.
        """
        stream, stride = self._engine.upload_stream(), self._stride
        step = max(1, min(STEP_NBYTES // stride, STEP_ROWS))
        with ProgressLine(f"uploading {format_nbytes(self._rows * stride)} to the GPU", self._rows) as progress:
            for start in range(0, self._rows, step):
                if is_stopped():
                    return
                stop = min(start + step, self._rows)
                with self._engine.device:
                    destination = Destination(self._pointer + start * stride, stop, stop * stride, stride)
                    try:
                        mover.upload_run(stream, self._host_extents, slice(start, stop), destination, boundaries)
                    finally:  # no copy may run when an error frees the memory
                        stream.wait()
                publish(self._extents_with_resident(stop))
                progress.done = stop

    def _extents_with_resident(self, rows: int) -> RowExtents:
        """Return the extents of all rows; the first `rows` rows are on the device."""
        host = self._host_extents
        table = np.array([[0, self._pointer, self._stride]], np.int64)
        if rows < host.rows:
            others = host.table[max(0, int(np.searchsorted(host.table[:, 0], rows, side="right")) - 1) :].copy()
            others[0, 0] = max(others[0, 0], rows)
            table = np.concatenate((table, others))
        return RowExtents.from_table(
            table, row_nbytes=host.row_nbytes, rows=host.rows, on_device=rows >= host.rows, owner=self._owner
        )


class ChangeSample:
    """Random bytes of an array's rows, to notice a change of the array.

    Extents of read-only memory have no bytes in the sample.
    """

    def __init__(self, extents: Sequence[MemoryExtent], row_nbytes: int) -> None:
        self._rows = [_row_bytes(extent, row_nbytes) for extent in extents if extent.writable]
        count = max(1, SAMPLE_NBYTES // max(1, len(self._rows)))  # bytes per extent
        rng = np.random.default_rng(0)
        self._indices = [(rng.integers(0, len(rows), count), rng.integers(0, row_nbytes, count)) for rows in self._rows]
        self._first_values = self._read()

    def has_changed(self) -> bool:
        """Return whether the sampled bytes have changed since the creation of the sample."""
        return not all(map(np.array_equal, self._first_values, self._read()))

    def _read(self) -> list[Any]:
        return [rows[indices] for rows, indices in zip(self._rows, self._indices, strict=True)]


def _row_bytes(extent: MemoryExtent, row_nbytes: int) -> Any:
    """Return a view of the extent's rows as bytes, without the gaps between rows."""
    nbytes = (extent.rows - 1) * extent.stride + row_nbytes
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(extent.address)
    return np.ndarray((extent.rows, row_nbytes), np.uint8, buffer=memory, strides=(extent.stride, 1))
