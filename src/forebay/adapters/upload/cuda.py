"""Uploads to a GPU: Forebay page-locks the array in place while the device copies it.

Page-locking runs at a quarter of the link's speed or faster, so locking and copying together are faster than a copy of
pageable memory. The CPU locks the next part while the device copies the previous one.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.adapters.upload.uploaders import as_framework_array
from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import DEVICE_ALIGNMENT, Array, ArraySpec, Layout
from forebay.engines.cuda.driver import Stream, address_of, is_capturing
from forebay.engines.cuda.engine import CudaEngine, process_page_locks
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.page_locks import PageLockSet, whole_pages
from forebay.errors import DeviceError

__all__ = ["CudaUploader"]

UPLOAD_STEP_NBYTES = 1 << 28  # bytes per step: one call locks them, and one copy uploads them
MIN_LOCKED_NBYTES = 1 << 22  # smaller arrays are faster without page-locks


class CudaUploader:
    """Uploads arrays of one framework to one GPU."""

    def __init__(self, engine: CudaEngine, device_handoff: DeviceHandOff) -> None:
        self._engine, self._device_handoff = engine, device_handoff

    def upload(self, array: Array) -> Any:
        self._refuse_capture()
        converted = as_framework_array(array, self._device_handoff, narrowed=False)
        rows = converted.reshape(1) if converted.ndim == 0 else converted
        layout = Layout.of([ArraySpec(rows.shape[1:], rows.dtype)], batch_rows=len(rows), alignment=DEVICE_ALIGNMENT)
        memory = self._engine.open_slot(layout.nbytes)
        try:
            self._fill(memory, rows)
            tensor = self._device_handoff.hand_off([memory.root(layout, 0, 0)])[0]
        finally:
            self._engine.close_slot(memory)
        return tensor[0] if converted.ndim == 0 else tensor

    def _fill(self, memory: CudaMemory, rows: Array) -> None:
        """Copy the array and block until it has arrived. Then no stream needs to wait for it."""
        with closing(PageLockSet(process_page_locks(self._engine.device))) as locks:
            try:
                with self._engine.fill_scope(memory):
                    _copy(memory, rows.reshape(-1).view(np.uint8), locks)
            finally:
                self._engine.wait_host_free(memory)

    def _refuse_capture(self) -> None:
        stream = self._device_handoff.stream()
        with self._engine.device:
            if stream is not None and is_capturing(stream):
                raise DeviceError(
                    "an array cannot be uploaded while a CUDA graph is captured. Call upload_once before the capture."
                )


def _copy(memory: CudaMemory, flat: Array, locks: PageLockSet) -> None:
    address = address_of(flat)
    inner = whole_pages(address, flat.nbytes)
    for start, stop in _steps(address, address + flat.nbytes, inner):
        target = memory.pointer + start - address
        lockable = inner[0] <= start and stop <= inner[1] and flat.nbytes >= MIN_LOCKED_NBYTES
        if lockable and _try_lock(locks, start, stop - start):
            _copy_locked(memory.stream, target, start, stop, locks.boundaries)
        else:
            _copy_pageable(memory.stream, target, flat[start - address : stop - address])


def _steps(start: int, stop: int, inner: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the bytes before the whole pages, the whole pages in steps, and the bytes after them."""
    while start < stop:
        edge = min((edge for edge in inner if edge > start), default=stop)
        end = min(stop, edge, (start // UPLOAD_STEP_NBYTES + 1) * UPLOAD_STEP_NBYTES)
        yield start, end
        start = end


def _try_lock(locks: PageLockSet, address: int, nbytes: int) -> bool:
    """Page-lock memory and return whether that worked. Read-only mapped files need a read-only lock."""
    for read_only in (False, True):
        with suppress(DeviceError):
            locks.add(address, nbytes, read_only=read_only)
            return True
    return False


def _copy_locked(stream: Stream, target: int, start: int, stop: int, boundaries: list[int]) -> None:
    """Copy locked memory, split where other code had locked a part before. No copy may cross two page-locks."""
    edges = [start, *(boundary for boundary in boundaries if start < boundary < stop), stop]
    for begin, end in pairwise(edges):
        stream.upload(target + begin - start, begin, end - begin)


def _copy_pageable(stream: Stream, target: int, piece: Array) -> None:
    """Copy memory that is not locked. The driver stages it.

    The driver refuses memory of which other code has locked a part; then this copies it to new memory first.
    """
    try:
        stream.upload_pageable(target, address_of(piece), piece.nbytes)
    except DeviceError:
        fresh = piece.copy()
        stream.upload_pageable(target, address_of(fresh), fresh.nbytes)
        stream.wait()
