"""The CUDA engine: uses events and stream markers to order copies and the consumer's work.

    fill        the slot's stream waits for the work that the consumer queued before it dropped the slot's batches, then
                copies the rows
    hand-off    the consumer's stream waits for the copy; if the framework hides its stream, the consumer's thread
                waits, or the framework itself waits when it imports a batch (`syncs_on_import`)
    use         if the framework itself waits, the engine blocks the consumer while the consumer is more than one group
                ahead of the device
    reclaim     the consumer's thread records an event on every stream that used the slot; if the framework hides its
                stream, the thread queues one marker

The engine never records an event for the whole context (`cuCtxRecordEvent`), because that would invalidate a CUDA
graph capture in progress.
"""

import itertools
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

from forebay.core.handoff import DeviceHandOff, StreamMarker
from forebay.core.spec import DEVICE_ALIGNMENT, align
from forebay.engines.cuda.driver import Device, Event, Stream, is_capturing
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.nvjpeg import why_no_nvjpeg
from forebay.engines.cuda.page_locks import PageLocks

__all__ = ["CudaEngine", "RunAheadLimit", "device_at", "process_page_locks"]

STREAMS = 2  # slots use the streams in turn, so the device copies one slot while a thread queues copies of another

_process_locks: dict[str, PageLocks] = {}  # a dict with at most one entry, because `setdefault` is thread-safe


@cache
def device_at(index: int) -> Device:
    """Return the `Device` of a GPU. All callers share it, so it compiles kernels once."""
    return Device(index)


def process_page_locks(device: Device) -> PageLocks:
    """Return the registry of this process's page-locks. The first call creates it, with `device`.

    A page-lock is valid for every device, so the registry uses the first device that the process opens. Opening a
    device only to lock pages would need device memory for the context, and would fail if none is free.
    """
    return _process_locks.setdefault("page locks", PageLocks(device))


class CudaEngine:
    """Slots in device memory that the framework's allocator provides."""

    name = "cuda"
    alignment = DEVICE_ALIGNMENT
    is_device = True

    def __init__(self, device_handoff: DeviceHandOff) -> None:
        self.device_handoff = device_handoff
        self.device = device_at(device_handoff.index)
        self._streams = [Stream(self.device, high_priority=True) for _ in range(STREAMS)]
        self._next_stream = itertools.cycle(self._streams)
        self._upload_stream: Stream | None = None
        self._run_ahead: RunAheadLimit | None = None
        self._marker: StreamMarker | None = None  # set by `reclaim`, used and reset by the next `_limit_run_ahead`
        self._mutex = threading.Lock()

    def enter_worker_thread(self) -> None:
        self.device.make_current()

    def consumer_scope(self) -> Device:
        return self.device

    def open_slot(self, nbytes: int, *, shared: bool = False) -> CudaMemory:
        """Allocate a slot. With `shared`, worker processes can map its host buffer."""
        with self._mutex:
            stream = next(self._next_stream)
        # `with self.device` sets the relaxed capture mode. In another mode, the framework's allocator could not call
        # cuMemAlloc while the consumer captures a CUDA graph.
        with self.device:
            pointer, owner = self.device_handoff.allocate(align(nbytes, self.alignment))
            self.device.check_owns(pointer)
            memory = CudaMemory(self.device, stream, nbytes, pointer, owner, shared=shared)
            # The pool may have returned memory that the framework's queued work still reads or writes.
            self._order_behind_consumer([memory], [self.device_handoff.stream()])
        return memory

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Allocate device memory from the framework's pool; return its address and its owner.

        This method blocks until work that the framework queued earlier no longer uses the memory.
        """
        with self.device, closing(Event(self.device)) as event:
            pointer, owner = self.device_handoff.allocate(align(nbytes, self.alignment))
            stream = self.device_handoff.stream()
            if stream is None:
                marker, upload_stream = self.device_handoff.mark(), self.upload_stream()
                upload_stream.wait_for_value(marker.pointer, marker.value)
                event.record(upload_stream)
            else:
                event.record(stream)
            event.wait()
        return pointer, owner

    def wait_host_free(self, memory: CudaMemory) -> None:
        """Block until no copy reads the slot's host buffer."""
        if memory.in_flight:
            with self.device:
                memory.arrival_event.wait()
            memory.in_flight = False

    def send(self, memory: CudaMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Queue the upload of the host buffer, or of its `parts` (offset, nbytes)."""
        with self.fill_scope(memory):
            for offset, nbytes in parts if parts is not None else [(0, memory.nbytes)]:
                memory.stream.upload(memory.pointer + offset, memory.host_address + offset, nbytes)

    def fill_scope(self, memory: CudaMemory, *, is_serial: bool = False) -> "_FillScope":
        """Return the context manager for code that queues copies into a slot on `memory.stream`.

        With `is_serial`, the fills of all slots use the same stream, so they run one after the other. The caller must
        make sure that the previous fill of this slot is done.
        """
        memory.stream = self._streams[0] if is_serial else memory.own_stream
        return _FillScope(self.device, memory)

    def upload_stream(self) -> Stream:
        """Return the low-priority stream for uploads in the background."""
        with self._mutex:
            if self._upload_stream is None:
                self._upload_stream = Stream(self.device)
            return self._upload_stream

    def await_arrival(self, memory: CudaMemory) -> None:
        """Block until the rows have arrived, unless the framework or its stream waits for them.

        If the framework exposes its stream, `hand_out` makes this stream wait. A framework with `syncs_on_import` waits
        when it imports the arrays. Then this method only limits how far the consumer runs ahead of the device.
        """
        memory.consumer_streams = {}
        if self.device_handoff.stream() is not None:
            return
        if self.device_handoff.syncs_on_import:
            self._limit_run_ahead()
        else:
            memory.wait_for_arrival()

    def _limit_run_ahead(self) -> None:
        """Block until the device has finished the work for all groups except the latest.

        The consumer queues work without waiting, and queued work keeps its batches. Without a limit, the feed would
        allocate a new slot for every queued group.
        """
        with self.device:
            if self._run_ahead is None:
                self._run_ahead = RunAheadLimit(self.device)
            marker, self._marker = self._marker or self.device_handoff.mark(), None
            self._run_ahead.step(marker)

    def hand_out(self, memory: CudaMemory) -> None:
        """Make the calling thread's stream wait for the rows, and remember the stream for `reclaim`.

        Another thread may close the slot before this thread takes the batch. The rows of a closed slot have arrived, so
        `make_stream_wait_for_arrival` then does nothing.
        """
        stream = self.device_handoff.stream()
        if stream is None or stream in memory.consumer_streams:
            return
        with memory.close_lock:
            memory.make_stream_wait_for_arrival(stream)
            memory.consumer_streams[stream] = self.device_handoff.record_stream(memory.owner)

    def reclaim(self, memories: Sequence[CudaMemory]) -> bool:
        """Make the next fill of these slots wait until the consumer's queued work is done.

        Return False, and do nothing, while the consumer captures a CUDA graph.
        """
        streams = {stream for memory in memories for stream in memory.consumer_streams} | {self.device_handoff.stream()}
        with self.device:
            if any(stream is not None and is_capturing(stream) for stream in streams):
                return False
        # `key=str`, because None (a stream that the framework hides) cannot be compared with an integer.
        self._marker = self._order_behind_consumer(memories, sorted(streams, key=str))
        for memory in memories:
            memory.consumer_streams = {}
        return True

    def _order_behind_consumer(
        self, memories: Sequence[CudaMemory], streams: Sequence[int | None]
    ) -> StreamMarker | None:
        """Record the events or the marker for which the next fill of these slots waits.

        Return the marker, or None if the framework exposes its streams.
        """
        if None in streams:
            marker = self.device_handoff.mark()
            for memory in memories:
                memory.release_marker = marker
            return marker
        with self.device:
            for memory in memories:
                memory.record_release([stream for stream in streams if stream is not None])
        return None

    def drain(self) -> None:
        """Block until all work on the engine's streams is done."""
        with self.device:
            for stream in self._all_streams():
                stream.wait()

    def why_no_image_decoder(self) -> str:
        """Return why the device cannot decode images, or an empty string if it can."""
        with self.device:
            return why_no_nvjpeg(self.device.index)

    def close_slot(self, memory: CudaMemory) -> None:
        memory.close()

    def close(self) -> None:
        self.drain()
        for stream in self._all_streams():
            stream.close()
        if self._run_ahead is not None:
            self._run_ahead.close()

    def _all_streams(self) -> list[Stream]:
        return [*self._streams, *([self._upload_stream] if self._upload_stream else [])]


class _FillScope:
    """The context manager around the fill of one slot.

    On entry, it makes the slot's stream wait for the work that the consumer queued before it dropped the slot. On exit,
    even after an error, it records the arrival event on the stream.
    """

    __slots__ = ("_device", "_memory")

    def __init__(self, device: Device, memory: CudaMemory) -> None:
        self._device, self._memory = device, memory

    def __enter__(self) -> CudaMemory:
        self._device.__enter__()
        self._memory.has_arrived = False
        try:
            self._memory.wait_for_release()
        except BaseException:
            self._device.__exit__(None, None, None)
            raise
        return self._memory

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            self._memory.arrival_event.record(self._memory.stream)
            self._memory.in_flight = True
        finally:
            self._device.__exit__(kind, error, traceback)


class RunAheadLimit:
    """Blocks the consumer while the device is more than one group behind."""

    def __init__(self, device: Device) -> None:
        self._device, self._stream = device, Stream(device)
        self._events = Event(device), Event(device)
        self._steps = 0
        self._close_lock = threading.RLock()  # a feed may be closed while its consumer waits here
        self._closed = False

    def step(self, marker: StreamMarker) -> None:
        """Block until the device has passed the marker of the previous call.

        The consumer has queued `marker` after all its earlier work. The next call waits for this marker.
        """
        with self._close_lock:
            if self._closed:
                return
            previous, current = self._events if self._steps % 2 else self._events[::-1]
            self._stream.wait_for_value(marker.pointer, marker.value)
            current.record(self._stream)
            if self._steps:
                previous.wait()
            self._steps += 1

    def close(self) -> None:
        with self._close_lock:
            self._closed = True
            with self._device:
                self._stream.wait()
            self._stream.close()
            for event in self._events:
                event.close()
