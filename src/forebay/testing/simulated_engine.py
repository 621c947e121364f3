"""A device that is not there: memory of its own, copies that take virtual time, and an eye for hazards.

It breaks loudly where a real device would corrupt data silently: a slot written while its copy is under way,
overwritten while it is lent, lent twice, or read before it arrived. Device memory is poisoned until a copy has
arrived in it.
"""

import mmap
import threading
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from forebay.core.spec import Layout
from forebay.errors import ForebayError

__all__ = ["HazardError", "SimulatedEngine", "SimulatedMemory", "VirtualClock"]

POISON = 0xDB


class HazardError(ForebayError, AssertionError):
    """What would have been silent corruption on a real device."""


@dataclass(slots=True)
class VirtualClock:
    """Time that passes only when somebody waits for it."""

    now: float = 0.0

    def advance_to(self, moment: float) -> None:
        self.now = max(self.now, moment)


@dataclass(slots=True, eq=False)
class SimulatedMemory:
    """A slot with two sides."""

    host: Any
    device: Any
    block: Any = None
    state: str = "free"  # free, in flight, arrived
    checksum: int = 0
    parts: list[tuple[int, int]] = field(default_factory=list)  # what is on its way: offset, bytes
    arrives_at: float = 0.0
    reusable_at: float = 0.0  # when the consumer's queued work has passed the slot

    def root(self, layout: Layout, leaf: int, batch: int) -> Any:
        return layout.view(self.device, leaf, batch=batch)

    def counted(self, root: Any) -> Any:
        return root


@dataclass(slots=True)
class SimulatedEngine:
    """Copies take `latency_seconds` + bytes / `bytes_per_second`; the consumer lags `consumer_seconds` behind."""

    bytes_per_second: float = 50e9
    latency_seconds: float = 10e-6
    consumer_seconds: float = 0.0
    name: str = "simulated"
    alignment: int = 256
    far: bool = True
    clock: VirtualClock = field(default_factory=VirtualClock)
    copies: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def attend(self) -> None:
        """Any thread will do."""

    def visit(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open_slot(self, nbytes: int, *, shared: bool = False) -> SimulatedMemory:
        return SimulatedMemory(mmap.mmap(-1, nbytes), mmap.mmap(-1, nbytes))

    def await_host(self, memory: SimulatedMemory) -> None:
        """Until the last copy out of the host side is done; what nobody was lent by then, nobody will be."""
        with self._lock:
            if memory.state == "in flight":
                self._land(memory)
                memory.state = "free"

    def send(self, memory: SimulatedMemory, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Start a copy; the device side is poisoned until it lands."""
        with self._lock:
            if memory.state == "arrived":
                raise HazardError("a slot was sent while its last content was still lent.")
            if memory.state == "in flight":
                raise HazardError("a slot was sent while its last copy was still under way.")
            start = max(self.clock.now, memory.reusable_at)
            memory.parts = [(0, len(memory.host))] if parts is None else list(parts)
            memory.state, memory.checksum = "in flight", zlib.crc32(memory.host)
            nbytes = sum(nbytes for _, nbytes in memory.parts)
            memory.arrives_at = start + self.latency_seconds + nbytes / self.bytes_per_second
            memory.device[:] = bytes([POISON]) * len(memory.device)
            self.copies += 1

    def await_arrival(self, memory: SimulatedMemory) -> None:
        """Until the consumer may read."""
        with self._lock:
            if memory.state == "arrived":
                raise HazardError("a slot was lent twice.")
            if memory.state == "free":
                raise HazardError("a slot was lent that was never sent.")
            self._land(memory)

    def lend(self, memory: SimulatedMemory) -> None:
        """A batch of a slot that has not arrived, or was taken back, must not be taken."""
        with self._lock:
            if memory.state != "arrived":
                raise HazardError(f"a batch was taken of a slot that is not lent: it is {memory.state}.")

    def reclaim(self, memories: Sequence[SimulatedMemory]) -> bool:
        """The consumer is done with these; its queued work is, a little later."""
        with self._lock:
            for memory in memories:
                if memory.state != "arrived":
                    raise HazardError(f"a slot was taken back that was not lent: it is {memory.state}.")
                memory.state, memory.reusable_at = "free", self.clock.now + self.consumer_seconds
        return True

    def close_slot(self, memory: SimulatedMemory) -> None:
        """Memory goes with its last view."""

    def close(self) -> None:
        """Nothing is kept."""

    def _land(self, memory: SimulatedMemory) -> None:
        if memory.state != "in flight":
            return
        self.clock.advance_to(memory.arrives_at)
        if zlib.crc32(memory.host) != memory.checksum:
            raise HazardError("a slot's host side was written while its copy was under way.")
        for offset, nbytes in memory.parts:
            memory.device[offset : offset + nbytes] = memory.host[offset : offset + nbytes]
        memory.state = "arrived"
