"""A timeline that can be run again: what the host does, one thing after the other, and what the device is given. Pure.

The host works, queues operations on the device, and at times waits for one. An operation begins when it has been
queued, when its stream has come to it, when its engine is free and when what it waits for is done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

__all__ = ["Action", "Engine", "Operation", "Timeline", "run"]

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


@dataclass(frozen=True, slots=True)
class Action:
    """Something the host does; it may end a step."""

    seconds: float  # of the host's own
    queues: tuple[int, ...] = ()  # operations, by number
    awaits: tuple[int, ...] = ()  # operations it stands still for, before it goes on
    line: int = -1
    kind: str = "work"  # or an event's kind: upload, download, input, ...
    ends_step: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some steps of a script."""

    actions: tuple[Action, ...]
    operations: tuple[Operation, ...] = ()

    def changed(
        self, *, actions: Iterable[Action] | None = None, operations: Iterable[Operation] | None = None
    ) -> "Timeline":
        return replace(
            self,
            actions=self.actions if actions is None else tuple(actions),
            operations=self.operations if operations is None else tuple(operations),
        )


@dataclass(slots=True)
class _Device:
    """Who is busy until when."""

    ends: dict[int, float] = field(default_factory=dict)  # operations that were queued
    streams: dict[int, float] = field(default_factory=dict)
    engines: dict[str, float] = field(default_factory=dict)

    def queue(self, number: int, operation: Operation, now: float) -> None:
        free = [now, self.streams.get(operation.stream, 0.0)]
        free += [self.ends[before] for before in operation.after if before in self.ends]
        if operation.engine != "compute":  # copies of one direction take turns; kernels of several streams share
            free.append(self.engines.get(operation.engine, 0.0))
        end = max(free) + operation.seconds
        self.ends[number] = self.streams[operation.stream] = self.engines[operation.engine] = end


def run(timeline: Timeline) -> tuple[float, ...]:
    """How long each step takes: from the end of the one before to its own, on the host or on the device, whichever
    is later at the last."""
    now, device, edges = 0.0, _Device(), [0.0]
    for action in timeline.actions:
        for awaited in action.awaits:
            now = max(now, device.ends.get(awaited, 0.0))
        now += action.seconds
        for number in action.queues:
            device.queue(number, timeline.operations[number], now)
        if action.ends_step:
            edges.append(now)
    if len(edges) > 1:
        edges[-1] = max(edges[-1], *device.ends.values(), 0.0)
    return _lengths(edges)


def _lengths(edges: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(edges))
