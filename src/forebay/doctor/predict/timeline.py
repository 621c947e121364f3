"""A timeline that can be run again: what the host does, one thing after the other, and what the device is given. Pure.

The host works, queues operations on the device, and at times waits for one. An operation begins when it has been
queued, when its stream has come to it, when its engine is free and when what it waits for is done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

__all__ = ["Action", "Engine", "Operation", "Timeline", "run", "steady"]

Engine = Literal["compute", "host to device", "device to host"]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something the device does."""

    seconds: float
    stream: int = 0
    engine: Engine = "compute"
    line: int = -1  # which line of the script had it queued
    nbytes: int = 0
    after: tuple[int, ...] = ()  # operations of other streams that must be done before
    turn: float = 0.0  # seconds that its stream takes from the operation before
    latency: float = 0.0  # seconds from when it is queued, or those are done, until it may begin
    pageable: bool = False  # a copy out of ordinary memory
    multiplies: bool = False  # a kernel that is a matrix product or a convolution


@dataclass(frozen=True, slots=True)
class Action:
    """Something the host does; it may end a step."""

    seconds: float  # of the host's own
    queues: tuple[int, ...] = ()  # operations, by number
    awaits: tuple[int, ...] = ()  # operations it stands still for, before it goes on
    line: int = -1
    kind: str = "work"  # or an event's kind: upload, download, input, ...
    ends_step: bool = False
    sleeps: bool = False  # while it waits, the host does not even ask whether it may go on


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some steps of a script."""

    actions: tuple[Action, ...]
    operations: tuple[Operation, ...] = ()
    floor: float = 0.0  # seconds that a step takes at least, because of somebody who works beside the loop

    def changed(
        self,
        *,
        actions: Iterable[Action] | None = None,
        operations: Iterable[Operation] | None = None,
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
class _Device:
    """Who is busy until when."""

    ends: dict[int, float] = field(default_factory=dict)  # operations that were queued
    streams: dict[int, float] = field(default_factory=dict)
    engines: dict[str, float] = field(default_factory=dict)
    done: float = 0.0  # when the last of them is

    def queue(self, number: int, operation: Operation, now: float) -> None:
        free = self.streams.get(operation.stream, -operation.turn) + operation.turn
        begins = max(now if operation.after else now + operation.latency, free)
        for before in operation.after:
            begins = max(begins, self.ends.get(before, 0.0) + operation.latency)
        if operation.engine != "compute":  # copies of one direction take turns; kernels of several streams share
            begins = max(begins, self.engines.get(operation.engine, 0.0))
        end = begins + operation.seconds
        self.ends[number] = self.streams[operation.stream] = self.engines[operation.engine] = end
        self.done = max(self.done, end)


def run(timeline: Timeline, *, rounds: int = 1) -> tuple[float, ...]:
    """How long each step takes: from when all of the one before is done, on the host and on the device, to when all
    of it is. The same steps may come again, so many rounds."""
    now, device, edges = 0.0, _Device(), [0.0]
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


def steady(timeline: Timeline) -> float:
    """A step once the loop has run for a while: the mean of the second of two rounds."""
    lengths = run(timeline, rounds=2)
    later = lengths[len(lengths) // 2 :]
    return max(timeline.floor, sum(later) / len(later)) if later else 0.0


def _lengths(edges: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(edges))
