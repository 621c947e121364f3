"""Uploads to a GPU: the array's own memory is page-locked for as long as the device fetches it.

Locking runs at a quarter of the link's speed or better, which is still faster than any copy of memory that is not
locked; and the next piece is being locked while the last one crosses.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.adapters.upload.uploaders import as_wired
from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import DEVICE_ALIGNMENT, Array, ArraySpec, Layout
from forebay.engines.cuda.driver import Stream, address_of, captures
from forebay.engines.cuda.engine import CudaEngine, page_locks
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.page_locks import Lock, whole_pages
from forebay.errors import DeviceError

__all__ = ["CudaUploader"]

PIECE_NBYTES = 1 << 28  # locked in one call, then fetched in one copy
LOCKED_FROM_NBYTES = 1 << 22  # below, locking costs more than it wins


class CudaUploader:
    """Arrays of one framework on one GPU."""

    def __init__(self, engine: CudaEngine, side: DeviceHandOff) -> None:
        self._engine, self._side = engine, side

    def upload(self, array: Array) -> Any:
        self._refuse_capture()
        wired = as_wired(array, self._side, narrowed=False)
        rows = wired.reshape(1) if wired.ndim == 0 else wired
        layout = Layout.of([ArraySpec(rows.shape[1:], rows.dtype)], batch_rows=len(rows), alignment=DEVICE_ALIGNMENT)
        memory = self._engine.open_slot(layout.nbytes)
        try:
            self._fill(memory, rows)
            tensor = self._side.hand_off([memory.root(layout, 0, 0)])[0]
        finally:
            self._engine.close_slot(memory)
        return tensor[0] if wired.ndim == 0 else tensor

    def _fill(self, memory: CudaMemory, rows: Array) -> None:
        """Returns when all of it has arrived: no framework needs to be told to wait."""
        with closing(Lock(page_locks(self._engine.device))) as lock:
            try:
                with self._engine.filling(memory):
                    _copy(memory, rows.reshape(-1).view(np.uint8), lock)
            finally:
                self._engine.await_host(memory)

    def _refuse_capture(self) -> None:
        stream = self._side.stream()
        with self._engine.device:
            if stream is not None and captures(stream):
                raise DeviceError(
                    "an array cannot be uploaded while a CUDA graph is captured: call upload_once for it before."
                )


def _copy(memory: CudaMemory, flat: Array, lock: Lock) -> None:
    address = address_of(flat)
    inner = whole_pages(address, flat.nbytes)
    for start, stop in _pieces(address, address + flat.nbytes, inner):
        target = memory.pointer + start - address
        inside = inner[0] <= start and stop <= inner[1] and flat.nbytes >= LOCKED_FROM_NBYTES
        if inside and _locked(lock, start, stop - start):
            _copy_locked(memory.stream, target, start, stop, lock.seams)
        else:
            _copy_pageable(memory.stream, target, flat[start - address : stop - address])


def _pieces(start: int, stop: int, inner: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """What comes before the whole pages, those in stretches that no page is in two of, and what comes after."""
    while start < stop:
        edge = min((edge for edge in inner if edge > start), default=stop)
        end = min(stop, edge, (start // PIECE_NBYTES + 1) * PIECE_NBYTES)
        yield start, end
        start = end


def _locked(lock: Lock, address: int, nbytes: int) -> bool:
    """Whether it could be page-locked; mapped files that may not be written are locked for reading only."""
    for read_only in (False, True):
        with suppress(DeviceError):
            lock.add(address, nbytes, read_only=read_only)
            return True
    return False


def _copy_locked(stream: Stream, target: int, start: int, stop: int, seams: list[int]) -> None:
    """One copy, unless somebody has locked a part of it before: none may cross from one locking into another."""
    edges = [start, *(seam for seam in seams if start < seam < stop), stop]
    for begin, end in pairwise(edges):
        stream.upload(target + begin - start, begin, end - begin)


def _copy_pageable(stream: Stream, target: int, piece: Array) -> None:
    """A copy that the driver stages; out of fresh memory where somebody has locked only a part of this."""
    try:
        stream.upload_pageable(target, address_of(piece), piece.nbytes)
    except DeviceError:
        fresh = piece.copy()
        stream.upload_pageable(target, address_of(fresh), fresh.nbytes)
        stream.wait()
