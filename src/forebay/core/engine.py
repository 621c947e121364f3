"""The engine protocol: an engine owns slot memory and moves it to the consumer.

A slot filler writes a slot in host memory, the engine sends the slot, and the hand-off wraps the memory where it
arrived. On the host both sides are the same memory and `send` does nothing. On a device, the engine orders copies and
consumer work with events.

    enter_worker_thread   once on each worker thread, before it fills its first slot
    consumer_scope        around calls on the consumer's thread: `with engine.consumer_scope():`
    open_slot             allocate a slot, on the host and on the device
    wait_host_free        before a slot is filled again: wait until its last copy has left host memory
    send                  after a slot is filled: start the copy of all of it, or of some parts
    await_arrival         before the hand-off, on the consumer's thread: wait until the consumer may read
    hand_out              for each batch, on the thread that takes it
    reclaim               on the consumer's thread, once it holds no reference to these slots: let their next use wait
                          for the work that the consumer has queued. Return False if the engine cannot do so now; the
                          slots then stay lent and the feed calls again
    close_slot            free the memory of a slot once no batch refers to it
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import Layout

__all__ = ["Engine", "SlotMemory"]


class SlotMemory(Protocol):
    """The memory of one slot."""

    @property
    def host(self) -> Any:
        """The writable buffer that slot fillers write rows to. It is not an ndarray."""
        ...

    @property
    def block(self) -> Any:
        """The shared block behind `host` for worker processes; None if not shared."""
        ...

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        """Return the object through which one leaf of one batch is handed off."""
        ...

    def lease_object(self, root: Any) -> Any:
        """Return the object whose reference count is the lease.

        Every array made from `root` references it.
        """
        ...


class Engine(Protocol):
    """Memory and copies of the host or of one device."""

    @property
    def name(self) -> str: ...
    @property
    def alignment(self) -> int:
        """Alignment in bytes of every leaf of every batch."""
        ...

    @property
    def is_device(self) -> bool:
        """Whether batches end up in device memory; device work may run behind the host."""
        ...

    @property
    def device_handoff(self) -> DeviceHandOff | None:
        """The hand-off for this device; None if the engine uses host memory."""
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
