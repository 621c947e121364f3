"""Staging: the CPU gathers rows into page-locked buffers, and the device copies them."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_count
from forebay.core.source import Source
from forebay.core.spec import HOST_ALIGNMENT, Array, ArraySpec, align
from forebay.engines.cuda.copy_plan import Destination
from forebay.engines.cuda.driver import Device, Event, Stream, address_of
from forebay.engines.cuda.memory import PageLockedMemory

__all__ = ["StagedRows", "StagingBuffers"]

STAGING_STEP_NBYTES = 8 << 20  # bytes gathered into one buffer


class StagedRows:
    """Gathers rows of a source and copies them into slots. Several threads may use it."""

    def __init__(self, device: Device, source: Source, *, threads: int) -> None:
        self._source = source
        self._row_nbytes = sum(align(spec.nbytes, HOST_ALIGNMENT) for spec in source.specs)
        # Two buffers per thread: the thread fills one while the device copies the other.
        nbytes = max(STAGING_STEP_NBYTES, self._row_nbytes)
        self._buffers = StagingBuffers(device, max_buffers=2 * threads + 2, nbytes=nbytes)

    def upload(
        self, stream: Stream, destinations: Sequence[Destination], output_specs: Sequence[ArraySpec], rows: Rows
    ) -> None:
        """Queue the rows on the stream, in the framework's dtypes. Return when all are gathered."""
        for start, step in _steps(rows, max(1, self._buffers.nbytes // max(1, self._row_nbytes))):
            buffer = self._buffers.take()
            try:
                gathered = _buffer_views(buffer[0].buffer, self._source.specs, row_count(step))
                self._source.gather(step, gathered)
                for leaf, destination, spec in zip(gathered, destinations, output_specs, strict=True):
                    _upload_leaf(stream, _narrow_in_place(leaf, spec), destination, start)
            finally:
                self._buffers.give_back(buffer, stream)

    def close(self) -> None:
        """Release the buffers. All copies must be done."""
        self._buffers.close()


class StagingBuffers:
    """Page-locked buffers for reuse. A buffer is written again only after the copy from it is done."""

    def __init__(self, device: Device, *, max_buffers: int, nbytes: int) -> None:
        self._device, self._max_buffers, self.nbytes = device, max_buffers, nbytes
        self._allocated: list[tuple[PageLockedMemory, Event]] = []
        self._free: deque[tuple[PageLockedMemory, Event]] = deque()
        self._returned = threading.Condition()

    def take(self) -> tuple[PageLockedMemory, Event]:
        """Return a buffer to write to. Call `give_back` after the copy from it was queued."""
        with self._returned:
            if not self._free and len(self._allocated) < self._max_buffers:
                allocated = (PageLockedMemory(self._device, self.nbytes), Event(self._device))
                self._allocated.append(allocated)
                return allocated
            while not self._free:
                self._returned.wait()
            taken = self._free.popleft()
        try:
            with self._device:
                taken[1].wait()
        except BaseException:
            self._put(taken)
            raise
        return taken

    def give_back(self, buffer: tuple[PageLockedMemory, Event], stream: Stream) -> None:
        try:
            with self._device:
                buffer[1].record(stream)
        finally:
            self._put(buffer)

    def _put(self, buffer: tuple[PageLockedMemory, Event]) -> None:
        """Return a buffer, even after a device error. Otherwise the next thread would hang."""
        with self._returned:
            self._free.append(buffer)
            self._returned.notify()

    def close(self) -> None:
        """Release the buffers. All copies must be done."""
        for memory, event in self._allocated:
            memory.close()
            event.close()
        self._allocated, self._free = [], deque()


def _steps(rows: Rows, max_rows: int) -> Iterator[tuple[int, Rows]]:
    for start in range(0, row_count(rows), max_rows):
        if isinstance(rows, slice):
            yield start, slice(rows.start + start, min(rows.start + start + max_rows, rows.stop))
        else:
            yield start, rows[start : start + max_rows]


def _buffer_views(buffer: Any, specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    views, offset = [], 0
    for spec in specs:
        views.append(np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=buffer, offset=offset))
        offset += align(views[-1].nbytes, HOST_ALIGNMENT)
    return views


def _narrow_in_place(leaf: Array, spec: ArraySpec) -> Array:
    """Convert numbers to the framework's dtype, in the same memory. Overflow gives the same values as on the device."""
    if leaf.dtype == spec.dtype:
        return leaf
    narrow: Array = leaf.reshape(-1).view(spec.dtype)[: leaf.size].reshape(leaf.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow[...] = leaf
    return narrow


def _upload_leaf(stream: Stream, leaf: Array, destination: Destination, start: int) -> None:
    """Copy contiguous rows to the device. If batches have gaps between them, make one copy per batch."""
    address, rows, row_nbytes = address_of(leaf), len(leaf), destination.row_nbytes
    at = start
    while row_nbytes and at < start + rows:
        batch_end = (at // destination.batch_rows + 1) * destination.batch_rows
        stop = start + rows if destination.is_contiguous else min(start + rows, batch_end)
        (pointer,) = destination.addresses(np.array([at]))
        stream.upload(int(pointer), address + (at - start) * row_nbytes, (stop - at) * row_nbytes)
        at = stop
