"""A simulated device with its own memory. Copies take virtual time.

The engine raises HazardError where a real device would silently corrupt data: if the feed writes to a slot during its
copy, overwrites a slot that is lent to the consumer, lends a slot twice, or hands out a batch before its copy has
arrived. Until a copy arrives, the device memory of the slot contains POISON.
"""

import mmap
import threading
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from forebay.core.plugin_names import warn_renamed
from forebay.core.spec import Layout
from forebay.errors import ForebayError

__all__ = ["HazardError", "SimulatedEngine", "SimulatedMemory", "VirtualClock"]

POISON = 0xDB  # each byte of the device memory, until the copy arrives


class HazardError(ForebayError, AssertionError):
    """A use of a slot that would silently corrupt data on a real device."""


@dataclass(slots=True)
class VirtualClock:
    """A clock that advances only when a thread waits for a copy."""

    now: float = 0.0  # seconds

    def advance_to(self, moment: float) -> None:
        """Set the time, unless it is already later."""
        self.now = max(self.now, moment)


@dataclass(slots=True, eq=False)
class SimulatedMemory:
    """The host and device memory of a slot. Times are virtual seconds."""

    host: Any
    device: Any
    block: Any = None  # the `SharedBlock` of `host`; None, because worker processes cannot share simulated memory
    state: str = "free"  # "free", "in flight" (sent), or "arrived" (lent to the consumer)
    checksum: int = 0  # checksum of the host memory at the start of the copy
    parts: list[tuple[int, int]] = field(default_factory=list)  # offset and size in bytes of each part to copy
    arrives_at: float = 0.0  # when the copy ends
    reusable_at: float = 0.0  # when the work that the consumer has queued no longer reads the slot

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        return layout.view(self.device, leaf, batch=batch)

    def lease_object(self, root: Any) -> Any:
        return root

    def counted(self, root: Any) -> Any:
        """Deprecated name of `lease_object`."""
        warn_renamed("SimulatedMemory", {"counted": "lease_object"})
        return SimulatedMemory.lease_object(self, root)


@dataclass(slots=True)
class SimulatedEngine:
    """A device whose copies take `latency_seconds` + bytes / `bytes_per_second`.

    The work that the consumer has queued ends `consumer_seconds` after the feed reclaims the slot.
    """

    bytes_per_second: float = 50e9
    latency_seconds: float = 10e-6
    consumer_seconds: float = 0.0
    name: str = "simulated"
    alignment: int = 256
    far: bool = True  # the value of `is_device`, under its name of Forebay 0.1, which the constructor still accepts
    clock: VirtualClock = field(default_factory=VirtualClock)
    copies: int = 0  # number of copies started
    _lock: threading.RLock = field(default_factory=threading.RLock)

    device_handoff: ClassVar[None] = None

    @property
    def is_device(self) -> bool:
        return self.far

    def enter_worker_thread(self) -> None:
        """Do nothing: every thread can use the simulated device."""

    def consumer_scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open_slot(self, nbytes: int, *, shared: bool = False) -> SimulatedMemory:
        return SimulatedMemory(mmap.mmap(-1, nbytes), mmap.mmap(-1, nbytes))

    def wait_host_free(self, memory: SimulatedMemory) -> None:
        """Finish the copy that reads the host memory.

        If the feed has sent the slot but not lent it, discard the slot's content.
        """
        with self._lock:
            if memory.state == "in flight":
                self._finish_copy(memory)
                memory.state = "free"

    def send(self, memory: SimulatedMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Start a copy, and fill the device memory with POISON until the copy arrives."""
        with self._lock:
            if memory.state == "arrived":
                raise HazardError("a slot was sent while its previous content was still lent. Call reclaim() first.")
            if memory.state == "in flight":
                raise HazardError(
                    "a slot was sent while its previous copy was still in flight. Call wait_host_free() first."
                )
            start = max(self.clock.now, memory.reusable_at)
            memory.parts = [(0, len(memory.host))] if parts is None else list(parts)
            memory.state, memory.checksum = "in flight", zlib.crc32(memory.host)
            nbytes = sum(nbytes for _, nbytes in memory.parts)
            memory.arrives_at = start + self.latency_seconds + nbytes / self.bytes_per_second
            memory.device[:] = bytes([POISON]) * len(memory.device)
            self.copies += 1

    def await_arrival(self, memory: SimulatedMemory) -> None:
        """Finish the copy, so that the consumer may read the slot."""
        with self._lock:
            if memory.state == "arrived":
                raise HazardError("a slot was lent twice. Call reclaim() and send() before you lend it again.")
            if memory.state == "free":
                raise HazardError("a slot was lent but never sent. Call send() first.")
            self._finish_copy(memory)

    def hand_out(self, memory: SimulatedMemory) -> None:
        """Raise HazardError unless the copy has arrived and the slot has not been reclaimed."""
        with self._lock:
            if memory.state != "arrived":
                raise HazardError(
                    f"a batch was taken from a slot that is not lent: its state is {memory.state!r}. Call "
                    "await_arrival() first."
                )

    def reclaim(self, memories: Sequence[SimulatedMemory]) -> bool:
        """Free lent slots. The next copy to them starts `consumer_seconds` later at the earliest."""
        with self._lock:
            for memory in memories:
                if memory.state != "arrived":
                    raise HazardError(
                        f"a slot was reclaimed that is not lent: its state is {memory.state!r}. Reclaim a slot only "
                        "once, and after await_arrival()."
                    )
                memory.state, memory.reusable_at = "free", self.clock.now + self.consumer_seconds
        return True

    def close_slot(self, memory: SimulatedMemory) -> None:
        """Do nothing: Python frees the memory when no array uses it any more."""

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""

    def _finish_copy(self, memory: SimulatedMemory) -> None:
        """Advance the clock to the end of the copy, and write the device memory."""
        if memory.state != "in flight":
            return
        self.clock.advance_to(memory.arrives_at)
        if zlib.crc32(memory.host) != memory.checksum:
            raise HazardError(
                "the host memory of a slot was written while its copy was in flight. Call wait_host_free() first."
            )
        for offset, nbytes in memory.parts:
            memory.device[offset : offset + nbytes] = memory.host[offset : offset + nbytes]
        memory.state = "arrived"

    # Methods with the deprecated names of Forebay 0.1. If a subclass overrides an old name, core/plugin_names.py makes
    # the new name an alias of the override. If the override calls `super()`, and the methods below called the new name
    # on `self`, they would call the override again, without end. Therefore they call the function of `SimulatedEngine`.

    def attend(self) -> None:
        """Deprecated name of `enter_worker_thread`."""
        warn_renamed("SimulatedEngine", {"attend": "enter_worker_thread"})
        SimulatedEngine.enter_worker_thread(self)

    def visit(self) -> AbstractContextManager[None]:
        """Deprecated name of `consumer_scope`."""
        warn_renamed("SimulatedEngine", {"visit": "consumer_scope"})
        return SimulatedEngine.consumer_scope(self)

    def await_host(self, memory: SimulatedMemory) -> None:
        """Deprecated name of `wait_host_free`."""
        warn_renamed("SimulatedEngine", {"await_host": "wait_host_free"})
        SimulatedEngine.wait_host_free(self, memory)

    def lend(self, memory: SimulatedMemory) -> None:
        """Deprecated name of `hand_out`."""
        warn_renamed("SimulatedEngine", {"lend": "hand_out"})
        SimulatedEngine.hand_out(self, memory)
