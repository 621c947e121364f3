"""The host engine: the consumer reads batches in host memory, without a copy.

`core/engine.py` says when the feed calls each method.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from forebay.core.shared_memory import SharedBlock, private_memory
from forebay.core.spec import HOST_ALIGNMENT, Layout

__all__ = ["HostEngine", "HostMemory"]


class HostMemory:
    """The page-aligned memory of one slot. With `shared`, worker processes can map it."""

    __slots__ = ("block", "host")

    def __init__(self, nbytes: int, *, shared: bool) -> None:
        self.block = SharedBlock(nbytes) if shared else None
        self.host = self.block.memory if self.block else private_memory(nbytes)

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        return layout.view(self.host, leaf, batch=batch)

    def lease_object(self, root: Any) -> Any:
        return root


class HostEngine:
    """An engine without copies.

    Python frees the memory of a slot when no array uses it any more.
    """

    name = "cpu"
    alignment = HOST_ALIGNMENT
    is_device = False
    device_handoff = None

    def enter_worker_thread(self) -> None:
        """Do nothing; threads need no preparation."""

    def consumer_scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open_slot(self, nbytes: int, *, shared: bool = False) -> HostMemory:
        return HostMemory(nbytes, shared=shared)

    def wait_host_free(self, memory: HostMemory) -> None:
        """Do nothing; no copy reads the slot."""

    def send(self, memory: HostMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Do nothing; the consumer reads the slot in place."""

    def await_arrival(self, memory: HostMemory) -> None:
        """Do nothing; the slot filler wrote the rows where the consumer reads them."""

    def hand_out(self, memory: HostMemory) -> None:
        """Do nothing; every thread may read the slot."""

    def reclaim(self, memories: Sequence[HostMemory]) -> bool:
        """Return True: the slots can be filled again at once.

        A host consumer drops a batch only after its work on the batch is done.
        """
        return True

    def close_slot(self, memory: HostMemory) -> None:
        if memory.block:
            memory.block.close()

    def close(self) -> None:
        """Do nothing; the feed has closed every slot."""
