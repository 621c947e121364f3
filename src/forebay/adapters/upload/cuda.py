"""Uploads to a GPU, from memory that Forebay page-locks in place.

The uploader divides an array into steps. The CPU page-locks one step while the device copies the step before it.
Page-locking reaches at least a quarter of the speed at which the device copies. Even so, locking and copying together
take less time than a copy of memory that is not locked.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.adapters.upload.uploaders import as_framework_array
from forebay.core.c_functions import address_of
from forebay.core.handoff import DeviceHandOff
from forebay.core.progress_line import ProgressLine
from forebay.core.spec import DEVICE_ALIGNMENT, Array, ArraySpec, Layout, format_nbytes
from forebay.engines.cuda.driver import Stream, is_capturing
from forebay.engines.cuda.engine import CudaEngine, process_page_locks
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.page_locks import PageLockSet, whole_pages
from forebay.errors import DeviceError

__all__ = ["CudaUploader"]

# 256 MiB in one step. Smaller steps overlap locking and copying more; larger steps need fewer calls of the driver.
UPLOAD_STEP_NBYTES = 1 << 28
MIN_LOCKED_NBYTES = 1 << 22  # 4 MiB; smaller arrays upload faster without page-locks


class CudaUploader:
    """Uploads arrays of one framework to one GPU."""

    def __init__(self, engine: CudaEngine, device_handoff: DeviceHandOff) -> None:
        self._engine, self._device_handoff = engine, device_handoff

    def upload(self, array: Array) -> Any:
        self._refuse_graph_capture()
        prepared = as_framework_array(array, self._device_handoff, narrows=False)
        rows = prepared.reshape(1) if prepared.ndim == 0 else prepared
        layout = Layout.of([ArraySpec(rows.shape[1:], rows.dtype)], batch_rows=len(rows), alignment=DEVICE_ALIGNMENT)
        memory = self._engine.open_slot(layout.nbytes)
        try:
            self._copy_and_wait(memory, rows)
            tensor = self._device_handoff.hand_off([memory.root(layout, 0, 0)])[0]
        finally:
            self._engine.close_slot(memory)
        return tensor[0] if prepared.ndim == 0 else tensor

    def _copy_and_wait(self, memory: CudaMemory, rows: Array) -> None:
        """Copy an array, and wait until it has arrived on the device."""
        with closing(PageLockSet(process_page_locks(self._engine.device))) as locks:
            try:
                line = ProgressLine(f"uploading {format_nbytes(rows.nbytes)} to the GPU", rows.nbytes)
                with self._engine.fill_scope(memory), line as progress:
                    _queue_copies(memory, rows.reshape(-1).view(np.uint8), locks, progress)
            finally:
                self._engine.wait_host_free(memory)

    def _refuse_graph_capture(self) -> None:
        """Raise DeviceError while a CUDA graph is captured on the framework's stream."""
        stream = self._device_handoff.stream()
        with self._engine.device:
            if stream is not None and is_capturing(stream):
                raise DeviceError(
                    "an array cannot be uploaded while a CUDA graph is captured. Call upload_once before the capture."
                )


def _queue_copies(memory: CudaMemory, bytes_view: Array, locks: PageLockSet, progress: ProgressLine) -> None:
    """Queue the copies of an array; page-lock the whole pages of a large array first.

    The progress line counts bytes when their copy is queued, because page-locking takes longer than copying.
    """
    address = address_of(bytes_view)
    page_range = whole_pages(address, bytes_view.nbytes)
    for start, stop in _copy_steps(address, address + bytes_view.nbytes, page_range):
        destination = memory.pointer + start - address
        can_lock = page_range[0] <= start and stop <= page_range[1] and bytes_view.nbytes >= MIN_LOCKED_NBYTES
        if can_lock and _try_lock(locks, start, stop - start):
            _copy_locked(memory.stream, destination, start, stop, locks.boundaries)
        else:
            _copy_pageable(memory.stream, destination, bytes_view[start - address : stop - address])
        progress.done = stop - address


def _copy_steps(start: int, stop: int, page_range: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the address ranges to copy, in order.

    They are the bytes before the whole pages, the whole pages in steps, and the bytes after the whole pages.
    """
    while start < stop:
        edge = min((edge for edge in page_range if edge > start), default=stop)
        end = min(stop, edge, (start // UPLOAD_STEP_NBYTES + 1) * UPLOAD_STEP_NBYTES)
        yield start, end
        start = end


def _try_lock(locks: PageLockSet, address: int, nbytes: int) -> bool:
    """Page-lock memory, and return whether the driver allowed it.

    The driver locks the memory of a file that is mapped read-only only with a read-only lock, so try this lock second.
    """
    for read_only in (False, True):
        with suppress(DeviceError):
            locks.add(address, nbytes, read_only=read_only)
            return True
    return False


def _copy_locked(stream: Stream, destination: int, start: int, stop: int, boundaries: list[int]) -> None:
    """Queue copies of page-locked memory, each inside one page-lock.

    A copy across the boundary of two page-locks would fail. The memory has several page-locks if other code has locked
    a part of it earlier.
    """
    edges = [start, *(boundary for boundary in boundaries if start < boundary < stop), stop]
    for begin, end in pairwise(edges):
        stream.upload(destination + begin - start, begin, end - begin)


def _copy_pageable(stream: Stream, destination: int, part: Array) -> None:
    """Queue a copy of memory that Forebay has not page-locked.

    The driver copies it through a buffer of its own. It refuses memory if other code has page-locked a part of it; in
    this case, copy the memory to a new array first.
    """
    try:
        stream.upload_pageable(destination, address_of(part), part.nbytes)
    except DeviceError:
        new_part = part.copy()
        stream.upload_pageable(destination, address_of(new_part), new_part.nbytes)
        stream.wait()
