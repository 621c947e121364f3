"""A timeline of host actions and device operations, and its simulation.

The host works, queues operations on the device, and sometimes waits for one. An operation begins when it is queued, its
stream and engine are free, and the operations that it depends on are done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

__all__ = ["DeviceEngine", "DeviceOperation", "HostAction", "Timeline", "simulate_steps", "steady_step_seconds"]

DeviceEngine = Literal["compute", "host to device", "device to host"]


@dataclass(frozen=True, slots=True)
class DeviceOperation:
    """A kernel or copy on the device."""

    seconds: float
    stream: int = 0
    engine: DeviceEngine = "compute"
    line: int = -1  # the source line that queued it
    nbytes: int = 0
    after: tuple[int, ...] = ()  # operations of other streams that must end before
    gap: float = 0.0  # minimum seconds between the previous operation of the stream and this one
    latency: float = 0.0  # seconds between its queueing, or the end of its dependencies, and its start
    pageable: bool = False  # a copy from or to pageable memory
    multiplies: bool = False  # a matrix product or a convolution


@dataclass(frozen=True, slots=True)
class HostAction:
    """A piece of work of the loop's thread. It may queue operations, wait, or end a step."""

    seconds: float  # of work, without waits
    queues: tuple[int, ...] = ()  # operations, by index
    awaits: tuple[int, ...] = ()  # operations that it waits for before its work
    line: int = -1
    kind: str = "work"  # work, launch, or an event kind: upload, download, input, ...
    ends_step: bool = False
    sleeps: bool = False  # the thread sleeps during the wait instead of polling


@dataclass(frozen=True, slots=True)
class Timeline:
    """Consecutive steps of a script."""

    actions: tuple[HostAction, ...]
    operations: tuple[DeviceOperation, ...] = ()
    floor: float = 0.0  # shortest step in seconds, set by the producers of batches

    def changed(
        self,
        *,
        actions: Iterable[HostAction] | None = None,
        operations: Iterable[DeviceOperation] | None = None,
        floor: float | None = None,
    ) -> "Timeline":
        return replace(
            self,
            actions=self.actions if actions is None else tuple(actions),
            operations=self.operations if operations is None else tuple(operations),
            floor=self.floor if floor is None else max(self.floor, floor),
        )

    @property
    def steps(self) -> int:
        return sum(action.ends_step for action in self.actions)


@dataclass(slots=True)
class _DeviceState:
    """The simulated device: until when each stream and engine is busy."""

    ends: dict[int, float] = field(default_factory=dict)  # end times of queued operations
    streams: dict[int, float] = field(default_factory=dict)
    engines: dict[str, float] = field(default_factory=dict)
    done: float = 0.0  # end time of the last operation

    def queue(self, number: int, operation: DeviceOperation, now: float) -> None:
        free = self.streams.get(operation.stream, -operation.gap) + operation.gap
        begins = max(now if operation.after else now + operation.latency, free)
        for before in operation.after:
            begins = max(begins, self.ends.get(before, 0.0) + operation.latency)
        if operation.engine != "compute":  # copies of one direction are serial; kernels of several streams overlap
            begins = max(begins, self.engines.get(operation.engine, 0.0))
        end = begins + operation.seconds
        self.ends[number] = self.streams[operation.stream] = self.engines[operation.engine] = end
        self.done = max(self.done, end)


def simulate_steps(timeline: Timeline, *, rounds: int = 1) -> tuple[float, ...]:
    """Simulate the timeline `rounds` times, and return the duration of each step.

    A step ends when all its work on host and device is done.
    """
    now, device, edges = 0.0, _DeviceState(), [0.0]
    operations = timeline.operations
    for _ in range(rounds):
        for action in timeline.actions:
            for awaited in action.awaits:
                now = max(now, device.ends.get(awaited, 0.0))
            now += action.seconds
            for number in action.queues:
                device.queue(number, operations[number], now)
            if action.ends_step:
                edges.append(max(now, device.done))
    return _lengths(edges)


def steady_step_seconds(timeline: Timeline) -> float:
    """Return the mean step time of the second round, when the loop is in a steady state."""
    lengths = simulate_steps(timeline, rounds=2)
    later = lengths[len(lengths) // 2 :]
    return max(timeline.floor, sum(later) / len(later)) if later else 0.0


def _lengths(edges: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(edges))
