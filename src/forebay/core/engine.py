"""What an engine is: it owns the memory of slots and moves it to where it is used.

A slot is filled in host memory, sent, and handed off from where it arrived. On the host that is one and the same
memory and sending is nothing; on a device the engine keeps the ring's rules with events of its own.

    attend        once on every thread that fills, before it does
    visit         around what the consumer's thread asks of it in one go: `with engine.visit():`
    open_slot     memory for a slot, host side and far side
    await_host    before a slot is filled again: until its last copy has left the host memory
    send          after it was filled: start the copy, of some parts or of all
    await_arrival before it is handed off, on the consumer's thread: until the consumer may read
    lend          as each of its batches is taken, on the thread that takes it
    reclaim       on the consumer's thread: nobody sees these slots any more; whatever the consumer queued comes first.
                  False where that cannot be arranged right now: they stay lent, and are asked about again
    close_slot    give the memory back once nobody sees it
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from forebay.core.spec import Layout

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
        """The object through which one leaf of one batch is handed off."""
        ...

    def counted(self, root: Any) -> Any:
        """What everything that is handed off through a root refers to; its reference count is the lease."""
        ...


class Engine(Protocol):
    """Where batches end up."""

    @property
    def name(self) -> str: ...
    @property
    def alignment(self) -> int: ...
    @property
    def far(self) -> bool:
        """Whether batches end up in other memory than the host's, which may be far behind it."""
        ...

    def attend(self) -> None: ...
    def visit(self) -> AbstractContextManager[Any]: ...
    def open_slot(self, nbytes: int, *, shared: bool = False) -> SlotMemory: ...
    def await_host(self, memory: SlotMemory) -> None: ...
    def send(self, memory: SlotMemory, parts: Sequence[tuple[int, int]] | None = None) -> None: ...
    def await_arrival(self, memory: SlotMemory) -> None: ...
    def lend(self, memory: SlotMemory) -> None: ...
    def reclaim(self, memories: Sequence[SlotMemory]) -> bool: ...
    def close_slot(self, memory: SlotMemory) -> None: ...
    def close(self) -> None: ...
