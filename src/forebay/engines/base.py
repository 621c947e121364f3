"""What an engine is: it owns the memory of slots and moves it to where it is used.

A slot is filled in host memory, sent, and handed off from where it arrived. On the host that is one and the same
memory and sending is nothing; on a device the engine keeps the ring's rules with events of its own.

    open_slot     memory for a slot, host side and far side
    await_host    before a slot is filled again: until its last copy has left the host memory
    send          after it was filled: start the copy
    await_arrival before it is handed off, on the consumer's thread: until the consumer may read
    reclaim       on the consumer's thread: nobody sees these slots any more; whatever the consumer queued comes first
    close_slot    give the memory back once nobody sees it
"""

from collections.abc import Sequence
from typing import Any, Protocol

from forebay.spec import Layout

__all__ = ["Engine", "SlotMemory"]


class SlotMemory(Protocol):
    """One slot's memory."""

    @property
    def host(self) -> Any:
        """A writable buffer that is not an ndarray: where rows are gathered."""
        ...

    @property
    def block(self) -> Any:
        """The host side as worker processes find it, where it was opened shared."""
        ...

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        """The object through which one leaf of one batch is handed off; its reference count is the lease."""
        ...


class Engine(Protocol):
    """Where batches end up."""

    @property
    def name(self) -> str: ...
    @property
    def alignment(self) -> int: ...
    def open_slot(self, nbytes: int, *, shared: bool = False) -> SlotMemory: ...
    def await_host(self, memory: SlotMemory) -> None: ...
    def send(self, memory: SlotMemory) -> None: ...
    def await_arrival(self, memory: SlotMemory) -> None: ...
    def reclaim(self, memories: Sequence[SlotMemory]) -> None: ...
    def close_slot(self, memory: SlotMemory) -> None: ...
    def close(self) -> None: ...
