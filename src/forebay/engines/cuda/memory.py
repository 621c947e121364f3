"""One slot's memory: device memory of the framework's own, and page-locked host memory where rows are staged.

What is handed off is a DLPack capsule of NumPy's own making. Its array lies in a shadow: address space as large as the
slot that is never touched and takes no memory. The capsule's pointer is moved from the shadow to the device before
anybody sees it. So leases are counted on the device as they are on the host, by the references to an array; NumPy's
exporter releases them on any thread, at interpreter exit too; and every framework takes the same capsule.
"""

import ctypes
import mmap
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from forebay.core.shared_memory import SharedBlock
from forebay.core.spec import Array, Layout
from forebay.engines.cuda.driver import Device, Event, Stream, address_of, wait_on_foreign

__all__ = ["CudaMemory", "LockedMemory", "Root", "Shadow"]

DLPACK_CUDA = 2  # kDLCUDA
_NAME = b"dltensor"
_UNTOUCHED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_Head = ctypes.c_uint64 * 2  # a DLTensor begins with its data pointer, then device type and number, 32 bits each


class Shadow(mmap.mmap):
    """Address space that stands for device memory, and holds that for as long as anything refers to it."""

    owner: Any

    def __new__(cls, nbytes: int, owner: Any) -> "Shadow":
        return super().__new__(cls, -1, nbytes, flags=_UNTOUCHED)

    def __init__(self, nbytes: int, owner: Any) -> None:
        self.owner = owner


class LockedMemory:
    """Page-locked host memory of our own, shared with worker processes where they fill it."""

    def __init__(self, device: Device, nbytes: int, *, shared: bool = False) -> None:
        self.block = SharedBlock(nbytes) if shared else None
        self.buffer: Any = self.block.memory if self.block else mmap.mmap(-1, nbytes)
        self._view = memoryview(self.buffer)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._view))
        device.lock(self.address, nbytes)
        # Memory that goes while it is locked leaves a lock behind, which the next array at that address would trust.
        self._unlock = weakref.finalize(self, device.unlock, self.address)
        self._unlock.atexit = False  # which would be before feeds are closed: copies out of it may be under way

    def close(self) -> None:
        """Nothing may be on its way any more."""
        self._unlock()
        if self.block:
            self.block.close()


class Root:
    """One leaf of one batch on the device, as everything that takes DLPack takes it."""

    __slots__ = ("_delta", "_memory", "shadow")

    def __init__(self, memory: "CudaMemory", shadow: Array, delta: int) -> None:
        self._memory, self.shadow, self._delta = memory, shadow, delta

    def __getitem__(self, rows: slice) -> "Root":
        return Root(self._memory, self.shadow[rows], self._delta)

    @property
    def pointer(self) -> int:
        return address_of(self.shadow) + self._delta

    @property
    def there(self) -> bool:
        """Whether its rows are known to have arrived; `__dlpack__` with a stream has asked."""
        return self._memory.there

    def capsule(self) -> Any:
        """In the old form without a version, which is the only one that all of them take."""
        capsule = self.shadow.__dlpack__()
        head = _Head.from_address(_capsule_pointer(capsule, _NAME))
        head[0] += self._delta
        head[1] = DLPACK_CUDA | self._memory.device.index << 32
        return capsule

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """With a stream, that is held until the rows have arrived."""
        if stream is not None and int(stream) >= 0:
            self._memory.hold_back(int(stream))
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._memory.device.index


class CudaMemory:
    """Both sides of a slot, and the events that say what may be done to it."""

    def __init__(self, device: Device, stream: Stream, nbytes: int, pointer: int, owner: Any, *, shared: bool) -> None:
        self.device, self.nbytes, self.pointer = device, nbytes, pointer
        self.own_stream = self.stream = stream  # that of the fill under way, or of the last
        self._shadow: Shadow | None = Shadow(nbytes, owner)
        self._seen = weakref.ref(self._shadow)
        self._shadow_address = ctypes.addressof(ctypes.c_char.from_buffer(self._shadow))
        self._shared = shared
        self._locked: LockedMemory | None = None
        self.arrived = Event(device)  # recorded behind whatever fills the device side
        self.in_flight = False  # whether it was recorded, and the host side may still be read
        self.there = False  # whether it is known to have fired since: asking takes longer than most of a hand-off
        self.used_on: dict[int, Any] = {}  # streams it was handed to since it was filled
        self.closing = threading.RLock()  # against a batch that is taken while the feed is closed
        self.behind: Any = None  # the mark that must be reached before it is filled again, or
        self._released: list[Event] = []  # events that must have fired, the first so many of them
        self._releases = 0
        self.workspace: Any = None  # what transports keep with a slot
        self.wide: dict[int, tuple[int, Any]] = {}  # beside the slot: where the rows of a leaf arrive to be narrowed
        self.targets: dict[int, tuple[Any, Any]] = {}  # where the rows of a leaf go, and their lengths, made once

    @property
    def host(self) -> Any:
        """Made when first asked for: rows that the device fetches itself need none."""
        return self._host.buffer

    @property
    def host_address(self) -> int:
        return self._host.address

    @property
    def block(self) -> Any:
        return self._host.block

    @property
    def _host(self) -> LockedMemory:
        if self._locked is None:
            self._locked = LockedMemory(self.device, self.nbytes, shared=self._shared)
        return self._locked

    def root(self, layout: Layout, leaf: int, batch: int) -> Root:
        return Root(self, layout.view(self._shadow, leaf, batch=batch), self.pointer - self._shadow_address)

    def counted(self, root: Root) -> Any:
        return root.shadow

    @property
    def owner(self) -> Any:
        """What holds the device side: there for as long as anything is seen of it, closed or not."""
        shadow = self._seen()
        return None if shadow is None else shadow.owner

    @property
    def closed(self) -> bool:
        return self._shadow is None

    def hold_back(self, stream: int) -> None:
        """Let somebody's stream wait until the rows have arrived; a stream that captures a graph is waited for here."""
        if self.there:
            return
        with self.closing, self.device:
            self.there = self.closed or self.arrived.fired
            if not self.there and not wait_on_foreign(stream, self.arrived):
                self.arrived.wait()

    def wait_for_arrival(self) -> None:
        """Block this thread until the rows are there; who closes has waited for that."""
        with self.closing, self.device:
            if not self.closed:
                self.arrived.wait()

    def record_release(self, streams: Sequence[int]) -> None:
        """Nobody sees it any more, but what these streams have queued may still read it."""
        while len(self._released) < len(streams):
            self._released.append(Event(self.device))
        for event, stream in zip(self._released, streams, strict=False):
            event.record(stream)
        self._releases = len(streams)

    def wait_for_release(self) -> None:
        """Hold our stream until the last consumer's queued work has passed."""
        if self.behind is not None:
            self.stream.wait_for_value(self.behind.pointer, self.behind.value)
        for event in self._released[: self._releases]:
            self.stream.wait_for(event)
        self.behind, self._releases = None, 0

    def close(self) -> None:
        """Give back what is ours; the device side goes with whoever still sees it."""
        if self.in_flight:
            with self.device:
                self.arrived.wait()
        if self._locked is not None:
            self._locked.close()
            self._locked = None
        if self.workspace is not None:
            self.workspace.close()
        self.wide.clear()
        with self.closing:
            self._shadow = None
            for event in (self.arrived, *self._released):
                event.close()
