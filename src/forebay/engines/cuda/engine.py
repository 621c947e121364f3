"""The CUDA engine: the ring's rules, kept on a device by events and marks.

    filled again    our stream waits for what the consumer had queued when the slot was taken back, then copies
    handed off      the consumer's stream waits for the copy; where it has none to tell, this thread does
    in use          a framework that keeps what it was lent until the device is done is held back by its own queue
    taken back      the consumer's thread leaves an event on every stream the slot was handed to, or one mark

No event is ever recorded for the whole context: that would break any CUDA graph somebody is capturing.
"""

import itertools
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

from forebay.core.spec import DEVICE_ALIGNMENT, align
from forebay.engines.cuda.driver import Device, Event, Stream, captures
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.page_locks import PageLocks
from forebay.engines.cuda.run_ahead import Lead

__all__ = ["CudaEngine", "device_at", "page_locks"]

STREAMS = 2  # neighbouring slots overlap: one's launch with another's copy

_of_process: dict[str, PageLocks] = {}


@cache
def device_at(index: int) -> Device:
    """One object a device: kernels are compiled once."""
    return Device(index)


def page_locks(device: Device) -> PageLocks:
    """One for the process, by the first device that asks: memory that is locked is locked for every device.

    No device is opened for it that nobody feeds: that takes memory there, and fails where there is none.
    """
    return _of_process.setdefault("page locks", PageLocks(device))


class CudaEngine:
    """Slots in device memory of the framework's own pool; `side` is what is known of that framework there."""

    name = "cuda"
    alignment = DEVICE_ALIGNMENT
    far = True

    def __init__(self, side: Any) -> None:
        self.side = side
        self.device = device_at(side.index)
        self._streams = [Stream(self.device, urgent=True) for _ in range(STREAMS)]
        self._turn = itertools.cycle(self._streams)
        self._slow: Stream | None = None
        self._lead: Lead | None = None
        self._mark: Any = None  # the newest, until the consumer's lead is counted by it
        self._mutex = threading.Lock()

    def attend(self) -> None:
        self.device.stay()

    def visit(self) -> Device:
        return self.device

    def open_slot(self, nbytes: int, *, shared: bool = False) -> CudaMemory:
        with self._mutex:
            stream = next(self._turn)
        with self.device:  # relaxed, since the framework may have to ask the driver for memory
            pointer, owner = self.side.allocate(align(nbytes, self.alignment))
            self.device.check_owns(pointer)
            memory = CudaMemory(self.device, stream, nbytes, pointer, owner, shared=shared)
            self._order_behind_consumer([memory], [self.side.stream()])
        return memory

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Memory of the framework's pool that nothing it has queued still uses; asked on a thread that may wait."""
        with self.device, closing(Event(self.device)) as event:
            pointer, owner = self.side.allocate(align(nbytes, self.alignment))
            stream = self.side.stream()
            if stream is None:
                mark, own = self.side.mark(), self.upload_stream()
                own.wait_for_value(mark.pointer, mark.value)
                event.record(own)
            else:
                event.record(stream)
            event.wait()
        return pointer, owner

    def await_host(self, memory: CudaMemory) -> None:
        if memory.in_flight:
            with self.device:
                memory.arrived.wait()
            memory.in_flight = False

    def send(self, memory: CudaMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Copy parts of the host side, given as (offset, bytes), or all of it."""
        with self.filling(memory):
            for offset, nbytes in parts if parts is not None else [(0, memory.nbytes)]:
                memory.stream.upload(memory.pointer + offset, memory.host_address + offset, nbytes)

    def filling(self, memory: CudaMemory, *, in_turn: bool = False) -> "_Filling":
        """`with engine.filling(memory):` whatever fills its device side is queued on `memory.stream`.

        Slots that are filled in turn share one stream, whichever they have else; the last fill of each is over.
        """
        memory.stream = self._streams[0] if in_turn else memory.own_stream
        return _Filling(self.device, memory)

    def upload_stream(self) -> Stream:
        """For copies that may take their time."""
        with self._mutex:
            if self._slow is None:
                self._slow = Stream(self.device)
            return self._slow

    def await_arrival(self, memory: CudaMemory) -> None:
        """Nothing where the framework waits by itself, on its stream: `lend` and the hand-off see to that."""
        memory.used_on = {}
        if self.side.stream() is not None:
            return
        if self.side.waits_on_import:
            self._limit_lead()
        else:
            memory.wait_for_arrival()

    def _limit_lead(self) -> None:
        """Hold the consumer until its device has come to the last group but one.

        It queues work without waiting for any, and all of it holds the batches it reads: slot after slot would be
        made for batches that are only waiting for their turn.
        """
        with self.device:
            if self._lead is None:
                self._lead = Lead(self.device)
            mark, self._mark = self._mark or self.side.mark(), None
            self._lead.step(mark)

    def lend(self, memory: CudaMemory) -> None:
        """A batch is taken, by whoever and on whatever stream: it waits for the rows, and is waited for afterwards.

        Its slot may be closed by now, if others have taken many batches since this one was handed off: all has arrived.
        """
        stream = self.side.stream()
        if stream is None or stream in memory.used_on:
            return
        with memory.closing:
            memory.hold_back(stream)
            memory.used_on[stream] = self.side.keep_for(memory.owner)

    def reclaim(self, memories: Sequence[CudaMemory]) -> bool:
        """Whether these may be filled again, behind what the consumer has queued; not while it captures a graph."""
        streams = {stream for memory in memories for stream in memory.used_on} | {self.side.stream()}
        with self.device:
            if any(stream is not None and captures(stream) for stream in streams):
                return False
        self._mark = self._order_behind_consumer(memories, sorted(streams, key=str))
        for memory in memories:
            memory.used_on = {}
        return True

    def _order_behind_consumer(self, memories: Sequence[CudaMemory], streams: Sequence[int | None]) -> Any:
        """Note what must be passed before these are filled, a mark if any; our streams wait for it then, not before."""
        if None in streams:
            mark = self.side.mark()
            for memory in memories:
                memory.behind = mark
            return mark
        with self.device:
            for memory in memories:
                memory.record_release([stream for stream in streams if stream is not None])
        return None

    def drain(self) -> None:
        """Wait until nothing of ours is under way."""
        with self.device:
            for stream in [*self._streams, *([self._slow] if self._slow else [])]:
                stream.wait()

    def close_slot(self, memory: CudaMemory) -> None:
        memory.close()

    def close(self) -> None:
        self.drain()
        for stream in [*self._streams, *([self._slow] if self._slow else [])]:
            stream.close()
        if self._lead is not None:
            self._lead.close()


class _Filling:
    """Around the filling of a slot: records its arrival at the end, so that nobody waits for an older one."""

    __slots__ = ("_device", "_memory")

    def __init__(self, device: Device, memory: CudaMemory) -> None:
        self._device, self._memory = device, memory

    def __enter__(self) -> CudaMemory:
        self._device.__enter__()
        self._memory.there = False
        try:
            self._memory.wait_for_release()
        except BaseException:
            self._device.__exit__(None, None, None)
            raise
        return self._memory

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            self._memory.arrived.record(self._memory.stream)
            self._memory.in_flight = True
        finally:
            self._device.__exit__(kind, error, traceback)
