"""Staging: the CPU gathers rows into page-locked buffers, and the device copies them to slots."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forebay.core.c_functions import address_of
from forebay.core.rows import Rows, row_count, split_rows
from forebay.core.skipped_rows import SkippedRow, gather_readable
from forebay.core.source import Source
from forebay.core.spec import HOST_ALIGNMENT, Array, ArraySpec, align
from forebay.engines.cuda.copy_plan import Destination
from forebay.engines.cuda.driver import Device, Event, Stream
from forebay.engines.cuda.memory import PageLockedMemory

__all__ = ["StagedRows", "StagingBuffers"]

# Bytes per buffer, the same number as in `pipeline/device_planner.py`. A buffer is larger only if one row is larger.
STAGING_STEP_NBYTES = 8 << 20


class StagedRows:
    """Gathers rows of a source and copies them into slots. Several threads may use it."""

    def __init__(self, device: Device, source: Source, *, threads: int) -> None:
        self._source = source
        self._row_nbytes = sum(align(spec.nbytes, HOST_ALIGNMENT) for spec in source.specs)
        # Two buffers per thread, and two for the consumer: a thread fills one while the device copies the other one.
        nbytes = max(STAGING_STEP_NBYTES, self._row_nbytes)
        self._buffers = StagingBuffers(device, max_buffers=2 * threads + 2, nbytes=nbytes)

    def upload(
        self, stream: Stream, destinations: Sequence[Destination], output_specs: Sequence[ArraySpec], rows: Rows
    ) -> None:
        """Gather rows on the CPU, and queue their upload in the framework's dtypes."""
        for start, part in split_rows(rows, max(1, self._buffers.nbytes // max(1, self._row_nbytes))):
            buffer = self._buffers.take()
            try:
                gathered = _buffer_views(buffer[0].buffer, self._source.specs, row_count(part))
                self._source.gather(part, gathered)
                for leaf, destination, spec in zip(gathered, destinations, output_specs, strict=True):
                    _upload_leaf(stream, _narrow_in_place(leaf, spec), destination, start)
            finally:
                self._buffers.give_back(buffer, stream)

    def upload_scattered(
        self, stream: Stream, destination: Destination, output_spec: ArraySpec, rows: Rows, positions: Array
    ) -> list[SkippedRow]:
        """Gather rows of a source with one leaf, and queue one upload for each row.

        Upload row `rows[i]` to position `positions[i]` of the group. For rows that the source cannot read, upload
        arbitrary values. Return these unreadable rows.
        """
        failed: list[SkippedRow] = []
        pointers, row_nbytes = destination.addresses(positions).tolist(), destination.row_nbytes
        for start, part in split_rows(rows, max(1, self._buffers.nbytes // max(1, self._row_nbytes))):
            buffer = self._buffers.take()
            try:
                (gathered,) = _buffer_views(buffer[0].buffer, self._source.specs, row_count(part))
                unreadable = gather_readable(self._source, part, [gathered])
                failed += [replace(row, row=int(positions[start + row.row])) for row in unreadable]
                address = address_of(_narrow_in_place(gathered, output_spec))
                for number, pointer in enumerate(pointers[start : start + row_count(part)]):
                    stream.upload(pointer, address + number * row_nbytes, row_nbytes)
            finally:
                self._buffers.give_back(buffer, stream)
        return failed

    def close(self) -> None:
        """Release the buffers. All copies must be done."""
        self._buffers.close()


class StagingBuffers:
    """A pool of page-locked buffers.

    Each buffer has an event that fires when the last copy from the buffer is done.
    """

    def __init__(self, device: Device, *, max_buffers: int, nbytes: int) -> None:
        self._device, self._max_buffers, self.nbytes = device, max_buffers, nbytes
        self._allocated: list[tuple[PageLockedMemory, Event]] = []
        self._free: deque[tuple[PageLockedMemory, Event]] = deque()
        self._returned = threading.Condition()

    def take(self) -> tuple[PageLockedMemory, Event]:
        """Return a buffer to write to.

        If no buffer is free, allocate a new one, up to `max_buffers`. Otherwise block until a buffer is free and the
        last copy from this buffer is done. The caller queues a copy from the buffer, and then calls `give_back`.
        """
        with self._returned:
            if not self._free and len(self._allocated) < self._max_buffers:
                allocated = (PageLockedMemory(self._device, self.nbytes), Event(self._device))
                self._allocated.append(allocated)
                return allocated
            while not self._free:
                self._returned.wait()
            buffer = self._free.popleft()
        try:
            with self._device:
                buffer[1].wait()
        except BaseException:
            self._put_back(buffer)
            raise
        return buffer

    def give_back(self, buffer: tuple[PageLockedMemory, Event], stream: Stream) -> None:
        """Put a buffer back into the pool.

        `stream` is the stream on which the caller has queued the copies from the buffer.
        """
        try:
            with self._device:
                buffer[1].record(stream)
        finally:  # even after a device error; otherwise a thread in `take` would wait forever
            self._put_back(buffer)

    def _put_back(self, buffer: tuple[PageLockedMemory, Event]) -> None:
        with self._returned:
            self._free.append(buffer)
            self._returned.notify()

    def close(self) -> None:
        """Release the buffers. All copies must be done."""
        for memory, event in self._allocated:
            memory.close()
            event.close()
        self._allocated, self._free = [], deque()


def _buffer_views(buffer: Any, specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    """Return one array of `rows` rows per leaf, one after the other in the buffer."""
    views, offset = [], 0
    for spec in specs:
        views.append(np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=buffer, offset=offset))
        offset += align(views[-1].nbytes, HOST_ALIGNMENT)
    return views


def _narrow_in_place(leaf: Array, spec: ArraySpec) -> Array:
    """Convert numbers to the framework's dtype in the same memory, if the dtypes differ.

    Return the leaf with this dtype. Numbers that overflow become the same values as on the device, without a warning.
    """
    if leaf.dtype == spec.dtype:
        return leaf
    narrowed: Array = leaf.reshape(-1).view(spec.dtype)[: leaf.size].reshape(leaf.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed[...] = leaf
    return narrowed


def _upload_leaf(stream: Stream, leaf: Array, destination: Destination, start: int) -> None:
    """Queue the upload of rows to the positions of the group from `start` on.

    The upload is one copy, or one copy per batch if the destination has gaps between batches.
    """
    address, end, row_nbytes = address_of(leaf), start + len(leaf), destination.row_nbytes
    position = start
    while row_nbytes and position < end:
        batch_end = (position // destination.batch_rows + 1) * destination.batch_rows
        stop = end if destination.is_contiguous else min(end, batch_end)
        (pointer,) = destination.addresses(np.array([position]))
        stream.upload(int(pointer), address + (position - start) * row_nbytes, (stop - position) * row_nbytes)
        position = stop
