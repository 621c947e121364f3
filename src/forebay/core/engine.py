"""The engine protocol: an engine allocates slots and copies their rows to the consumer's memory.

A slot is a reusable buffer for a group of batches. A slot filler writes rows to the slot's host memory, the engine
copies them to the slot's device memory, and the hand-off wraps the device memory in arrays of a framework. If batches
stay on the host, `send` does nothing, and the hand-off wraps the host memory.

The feed calls these methods of an engine:

    enter_worker_thread   once on each worker thread, before it fills its first slot
    consumer_scope        as `with engine.consumer_scope():`, around `reclaim` and the fills on the consumer's thread
    open_slot             to allocate the host memory and the device memory of a slot; with `shared`, worker processes
                          can map the host memory
    wait_host_free        before a slot is filled again: blocks until no copy reads its host memory
    send                  after a slot is filled: starts the copy of the whole slot, or of parts (offset, nbytes)
    await_arrival         on the consumer's thread, before the hand-off: blocks until the hand-off may begin
    hand_out              for each batch, on the thread that takes it: makes the thread's CUDA stream wait for the rows
    reclaim               on the consumer's thread, when it has dropped all batches of some slots: makes their next
                          fill wait for the work that the consumer has queued. If the engine cannot do this now, it
                          returns False. The slots then stay lent, and the feed calls `reclaim` again later
    close_slot            when the feed no longer needs the slot: frees its memory as soon as no batch refers to it
    close                 after all slots are closed
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import Layout

__all__ = ["Engine", "ImageDecodingEngine", "SlotMemory"]


class SlotMemory(Protocol):
    """The memory of one slot."""

    @property
    def host(self) -> Any:
        """The object with the buffer protocol (no ndarray) that slot fillers write rows to."""
        ...

    @property
    def block(self) -> Any:
        """The `SharedBlock` that contains `host`; None if worker processes do not share the slot."""
        ...

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        """Return the object that the hand-off converts to one leaf of one batch."""
        ...

    def lease_object(self, root: Any) -> Any:
        """Return the object whose reference count shows whether the consumer still holds a batch.

        Every array that a framework makes from `root` refers to this object.
        """
        ...


class Engine(Protocol):
    """Provides slot memory on the host or on one device, and copies rows to it."""

    @property
    def name(self) -> str: ...
    @property
    def alignment(self) -> int:
        """Alignment in bytes of every leaf of every batch."""
        ...

    @property
    def is_device(self) -> bool:
        """Whether batches are in device memory.

        If so, work that the consumer has queued may still read a batch after the consumer drops it.
        """
        ...

    @property
    def device_handoff(self) -> DeviceHandOff | None:
        """The hand-off for this device; None if batches are in host memory."""
        ...

    def enter_worker_thread(self) -> None: ...
    def consumer_scope(self) -> AbstractContextManager[Any]: ...
    def open_slot(self, nbytes: int, *, shared: bool = False) -> SlotMemory: ...
    def wait_host_free(self, memory: SlotMemory) -> None: ...
    def send(self, memory: SlotMemory, parts: Sequence[tuple[int, int]] | None = None) -> None: ...
    def await_arrival(self, memory: SlotMemory) -> None: ...
    def hand_out(self, memory: SlotMemory) -> None: ...
    def reclaim(self, memories: Sequence[SlotMemory]) -> bool: ...
    def close_slot(self, memory: SlotMemory) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class ImageDecodingEngine(Protocol):
    """An engine whose device may be able to decode images."""

    def why_no_image_decoder(self) -> str:
        """Return why the device cannot decode images, or an empty string if it can."""
        ...
