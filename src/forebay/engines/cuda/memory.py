"""The memory of one slot: device memory, and page-locked host memory if rows are staged.

The framework's pool provides the device memory. Forebay hands a slot off as a DLPack capsule that NumPy exports from a
shadow array. A shadow array is reserved address space of the slot's size; it uses no memory, because no code accesses
it. Before any framework sees the capsule, Forebay replaces its data pointer with the device pointer. A shadow array has
three advantages. NumPy's reference counts show whether the consumer still uses a batch, as they do on the host. NumPy
releases the references on any thread, even at interpreter exit. Every framework accepts the capsule.
"""

import ctypes
import mmap
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from forebay.core.c_functions import address_of
from forebay.core.handoff import StreamMarker
from forebay.core.shared_memory import SharedBlock
from forebay.core.spec import Array, Layout
from forebay.engines.cuda.copy_plan import Destination
from forebay.engines.cuda.driver import Device, Event, Stream, make_stream_wait

__all__ = ["CudaMemory", "DeviceRoot", "PageLockedMemory", "ShadowArray"]

DLPACK_CUDA = 2  # kDLCUDA
_CAPSULE_NAME = b"dltensor"
# Reserve addresses without memory. Python before 3.13 has no name for MAP_NORESERVE (0x4000).
_SHADOW_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)

_get_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_capsule_pointer.restype = ctypes.c_void_p
_get_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
# A DLTensor begins with its data pointer (64 bits), its device type and its device index (32 bits each).
_TensorHead = ctypes.c_uint64 * 2


class ShadowArray(mmap.mmap):
    """Reserved address space that stands for device memory.

    It keeps `owner`, the framework's object that owns this memory, alive.
    """

    owner: Any

    def __new__(cls, nbytes: int, owner: Any) -> "ShadowArray":
        return super().__new__(cls, -1, nbytes, flags=_SHADOW_FLAGS)

    def __init__(self, nbytes: int, owner: Any) -> None:
        self.owner = owner


class PageLockedMemory:
    """Page-locked host memory that Forebay allocates. With `shared`, worker processes can map it."""

    def __init__(self, device: Device, nbytes: int, *, shared: bool = False) -> None:
        self.block = SharedBlock(nbytes) if shared else None
        self.buffer: Any = self.block.memory if self.block else mmap.mmap(-1, nbytes)
        self._view = memoryview(self.buffer)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._view))
        device.page_lock(self.address, nbytes)
        # Without this finalizer, the address would stay page-locked after the memory is freed, and the driver would
        # treat the next array at that address as page-locked.
        self._unlock = weakref.finalize(self, device.page_unlock, self.address)
        self._unlock.atexit = False  # at exit, finalizers run before feeds are closed, and copies may still be running

    def close(self) -> None:
        """Release the memory. All copies must be done."""
        self._unlock()
        if self.block:
            self.block.close()


class DeviceRoot:
    """One leaf of one batch on the device. Every framework can import it by DLPack.

    `shadow` is a view of the shadow array. Its address plus `device_offset` is the device pointer.
    """

    __slots__ = ("_device_offset", "_memory", "shadow")

    def __init__(self, memory: "CudaMemory", shadow: Array, device_offset: int) -> None:
        self._memory, self.shadow, self._device_offset = memory, shadow, device_offset

    def __getitem__(self, rows: slice) -> "DeviceRoot":
        return DeviceRoot(self._memory, self.shadow[rows], self._device_offset)

    @property
    def pointer(self) -> int:
        return address_of(self.shadow) + self._device_offset

    @property
    def has_arrived(self) -> bool:
        """Whether Forebay knows that the rows have arrived.

        If False, the rows may have arrived nevertheless, because Forebay queries the event rarely.
        """
        return self._memory.has_arrived

    def capsule(self) -> Any:
        """Return a DLPack capsule without a version, the only form that every framework accepts."""
        capsule = self.shadow.__dlpack__()
        head = _TensorHead.from_address(_get_capsule_pointer(capsule, _CAPSULE_NAME))
        head[0] += self._device_offset
        head[1] = DLPACK_CUDA | self._memory.device.index << 32
        return capsule

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """Return a capsule, and make the stream (if any) wait for the rows."""
        if stream is not None and int(stream) >= 0:
            self._memory.make_stream_wait_for_arrival(int(stream))
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._memory.device.index


class CudaMemory:
    """Device memory, host buffer, and events of one slot."""

    def __init__(self, device: Device, stream: Stream, nbytes: int, pointer: int, owner: Any, *, shared: bool) -> None:
        self.device, self.nbytes, self.pointer = device, nbytes, pointer
        self.own_stream = self.stream = stream  # `stream` is the stream of the last fill, which `fill_scope` sets
        self._shadow: ShadowArray | None = ShadowArray(nbytes, owner)
        self._shadow_ref = weakref.ref(self._shadow)
        self._shadow_address = ctypes.addressof(ctypes.c_char.from_buffer(self._shadow))
        self._shared = shared
        self._host_memory: PageLockedMemory | None = None  # the host buffer; None until its first use
        self.arrival_event = Event(device)  # the engine records it at the end of every fill
        self.in_flight = False  # whether the last fill may still run and read the host buffer
        self.has_arrived = False  # cached, because a query of the event takes longer than all other work of a hand-off
        self.consumer_streams: dict[int, Any] = {}  # streams that took batches of this slot since its last fill
        self.close_lock = threading.RLock()  # a thread may take a batch while another thread closes the feed
        # The next fill waits for the marker, or for the first `_release_count` events.
        self.release_marker: StreamMarker | None = None
        self._release_events: list[Event] = []
        self._release_count = 0
        self.workspace: Any = None  # the KernelWorkspace of this slot; None until a kernel needs it
        self.narrowing_buffers: dict[int, tuple[int, Any]] = {}  # leaf: pointer and owner of its 64-bit rows
        self.row_owners: list[Any] = []  # owners of the resident rows that the last fill reads
        self.copy_targets: dict[int, tuple[Any, Any]] = {}  # leaf: target addresses and lengths of all rows

    @property
    def host(self) -> Any:
        """The host buffer, allocated at first use.

        A slot into which the device pulls rows needs no host buffer.
        """
        return self._host.buffer

    @property
    def host_address(self) -> int:
        return self._host.address

    @property
    def block(self) -> Any:
        return self._host.block

    @property
    def _host(self) -> PageLockedMemory:
        if self._host_memory is None:
            self._host_memory = PageLockedMemory(self.device, self.nbytes, shared=self._shared)
        return self._host_memory

    def root(self, layout: Layout, leaf: int, batch: int) -> DeviceRoot:
        return DeviceRoot(self, layout.view(self._shadow, leaf, batch=batch), self.pointer - self._shadow_address)

    def destination(self, layout: Layout, leaf: int) -> Destination:
        """Return where the rows of a leaf are in the slot."""
        pointer = self.pointer + layout.offsets[leaf]
        return Destination(pointer, layout.batch_rows, layout.strides[leaf], layout.specs[leaf].nbytes)

    def lease_object(self, root: DeviceRoot) -> Any:
        return root.shadow

    @property
    def owner(self) -> Any:
        """The owner of the device memory.

        After `close()`, the owner lives as long as any batch of the slot. When the last batch is gone, this is None.
        """
        shadow = self._shadow_ref()
        return None if shadow is None else shadow.owner

    @property
    def closed(self) -> bool:
        return self._shadow is None

    def make_stream_wait_for_arrival(self, stream: int) -> None:
        """Make a consumer's stream wait for the rows.

        If the stream captures a CUDA graph, the calling thread waits instead.
        """
        if self.has_arrived:
            return
        with self.close_lock, self.device:
            self.has_arrived = self.closed or self.arrival_event.has_fired
            if not self.has_arrived and not make_stream_wait(stream, self.arrival_event):
                self.arrival_event.wait()

    def wait_for_arrival(self) -> None:
        """Block this thread until the rows have arrived, unless the slot is closed.

        The rows of a closed slot have arrived, because `close` waits for them.
        """
        with self.close_lock, self.device:
            if not self.closed:
                self.arrival_event.wait()

    def record_release(self, streams: Sequence[int]) -> None:
        """Record an event on each stream of the consumer.

        The next fill waits for these events, because queued work on the streams may still read the slot.
        """
        while len(self._release_events) < len(streams):
            self._release_events.append(Event(self.device))
        for event, stream in zip(self._release_events, streams, strict=False):
            event.record(stream)
        self._release_count = len(streams)

    def wait_for_release(self) -> None:
        """Make the fill's stream wait for the events of `record_release`, or for the marker."""
        if self.release_marker is not None:
            self.stream.wait_for_value(self.release_marker.pointer, self.release_marker.value)
        for event in self._release_events[: self._release_count]:
            self.stream.wait_for(event)
        self.release_marker, self._release_count = None, 0

    def close(self) -> None:
        """Wait for the last fill, then release the host buffer, kernel buffers and events.

        The device memory of the rows stays allocated until the last batch is gone.
        """
        if self.in_flight:
            with self.device:
                self.arrival_event.wait()
        if self._host_memory is not None:
            self._host_memory.close()
            self._host_memory = None
        if self.workspace is not None:
            self.workspace.close()
        self.narrowing_buffers.clear()
        self.row_owners.clear()
        with self.close_lock:
            self._shadow = None
            for event in (self.arrival_event, *self._release_events):
                event.close()
