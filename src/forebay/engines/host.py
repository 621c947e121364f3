"""The host engine: batches are used in the memory they were gathered into."""

import mmap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from forebay.core.shared_memory import SharedBlock
from forebay.core.spec import HOST_ALIGNMENT, Layout

__all__ = ["HostEngine", "HostMemory"]


class HostMemory:
    """Page-aligned anonymous memory, shared with worker processes where they fill it."""

    __slots__ = ("block", "host")

    def __init__(self, nbytes: int, *, shared: bool) -> None:
        self.block = SharedBlock(nbytes) if shared else None
        self.host = (
            self.block.memory if self.block else mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        )

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        return layout.view(self.host, leaf, batch=batch)

    def counted(self, root: Any) -> Any:
        return root


class HostEngine:
    """Sending is nothing and arrival is at once; memory goes when its last view does."""

    name = "cpu"
    alignment = HOST_ALIGNMENT
    far = False

    def attend(self) -> None:
        """Any thread will do."""

    def visit(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open_slot(self, nbytes: int, *, shared: bool = False) -> HostMemory:
        return HostMemory(nbytes, shared=shared)

    def await_host(self, memory: HostMemory) -> None:
        """Nothing is ever on its way."""

    def send(self, memory: HostMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """It is where it is used."""

    def await_arrival(self, memory: HostMemory) -> None:
        """It never left."""

    def lend(self, memory: HostMemory) -> None:
        """Any thread may read it."""

    def reclaim(self, memories: Sequence[HostMemory]) -> bool:
        """A consumer on the host is done with a batch when it no longer refers to it."""
        return True

    def close_slot(self, memory: HostMemory) -> None:
        if memory.block:
            memory.block.close()

    def close(self) -> None:
        """Slots were closed one by one."""
