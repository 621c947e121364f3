"""A timeline of host actions and device operations, and its simulation.

The host works, queues operations on the device, and sometimes waits for an operation. An operation starts when the host
has queued it, its stream is free, and its dependencies have ended. A copy also needs a free copy engine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

__all__ = [
    "DeviceEngine",
    "DeviceOperation",
    "HostAction",
    "Timeline",
    "least_step_seconds",
    "simulate_steps",
    "steady_step_seconds",
]

DeviceEngine = Literal["compute", "host to device", "device to host"]


@dataclass(frozen=True, slots=True)
class DeviceOperation:
    """A kernel or copy on the device."""

    seconds: float
    stream: int = 0
    engine: DeviceEngine = "compute"
    line: int = -1  # index into `Capture.lines` of the line that queued the operation; -1 if unknown
    nbytes: int = 0  # bytes that a copy transfers; 0 for a kernel
    dependencies: tuple[int, ...] = ()  # indices of operations on other streams that must end first
    gap_seconds: float = 0.0  # shortest time between the end of the previous operation of the stream and the start
    latency_seconds: float = 0.0  # delay after queueing, or after the end of the dependencies
    is_pageable: bool = False  # whether this is a copy from or to pageable memory
    is_matrix_product: bool = False  # whether this is a matrix product, a convolution or an attention kernel
    name: str = ""  # of the kernel
    blocks: int = 0  # thread blocks of a kernel; 0 if unknown


@dataclass(frozen=True, slots=True)
class HostAction:
    """Work of the loop's thread. An action may queue operations, wait, or end a step."""

    seconds: float  # of work, without waits
    queued_operations: tuple[int, ...] = ()  # indices of operations that the action queues after its work
    awaited_operations: tuple[int, ...] = ()  # indices of operations that the action waits for before its work
    line: int = -1  # index into `Capture.lines`; -1 if unknown
    kind: str = "work"  # "work", "launch", or a value of EventKind, such as "upload", or "run" for a compiled call
    ends_step: bool = False
    sleeps: bool = False  # whether the thread sleeps while it waits; otherwise it polls


@dataclass(frozen=True, slots=True)
class Timeline:
    """Consecutive steps of a script. A producer is another thread or process that makes batches."""

    actions: tuple[HostAction, ...]
    operations: tuple[DeviceOperation, ...] = ()
    min_step_seconds: float = 0.0  # lower limit of the step time, such as the time that new producers need
    producer_seconds: float = 0.0  # time per step that the recorded producers need, which is another lower limit

    def with_parts(
        self,
        *,
        actions: Iterable[HostAction] | None = None,
        operations: Iterable[DeviceOperation] | None = None,
        min_step_seconds: float | None = None,
        producer_seconds: float | None = None,
    ) -> "Timeline":
        """Return a copy with the given parts. `min_step_seconds` can only grow."""
        return replace(
            self,
            actions=self.actions if actions is None else tuple(actions),
            operations=self.operations if operations is None else tuple(operations),
            min_step_seconds=self.min_step_seconds
            if min_step_seconds is None
            else max(self.min_step_seconds, min_step_seconds),
            producer_seconds=self.producer_seconds if producer_seconds is None else producer_seconds,
        )

    @property
    def least_seconds(self) -> float:
        """The lower limit of the step time that is independent of actions and operations."""
        return max(self.min_step_seconds, self.producer_seconds)

    @property
    def step_count(self) -> int:
        return sum(action.ends_step for action in self.actions)


@dataclass(slots=True)
class _DeviceState:
    """The simulated device. Times are in seconds since the start of the simulation."""

    operation_ends: dict[int, float] = field(default_factory=dict)  # by index of the operation
    stream_ends: dict[int, float] = field(default_factory=dict)  # end of the last operation of each stream
    engine_ends: dict[str, float] = field(default_factory=dict)  # end of the last operation of each engine
    last_end: float = 0.0  # end of the last operation on any stream

    def queue(self, index: int, operation: DeviceOperation, now: float) -> None:
        """Schedule an operation that the host queues at `now`."""
        stream_free_at = self.stream_ends.get(operation.stream, -operation.gap_seconds) + operation.gap_seconds
        start = max(now if operation.dependencies else now + operation.latency_seconds, stream_free_at)
        for dependency in operation.dependencies:
            start = max(start, self.operation_ends.get(dependency, 0.0) + operation.latency_seconds)
        if operation.engine != "compute":  # copies in one direction are serial; kernels of several streams overlap
            start = max(start, self.engine_ends.get(operation.engine, 0.0))
        end = start + operation.seconds
        self.operation_ends[index] = self.stream_ends[operation.stream] = self.engine_ends[operation.engine] = end
        self.last_end = max(self.last_end, end)


def simulate_steps(timeline: Timeline, *, rounds: int = 1) -> tuple[float, ...]:
    """Simulate the timeline `rounds` times, and return the seconds of each step.

    A step ends when all work that the host has queued so far is done. The host itself does not wait for this.
    """
    now, device, edges = 0.0, _DeviceState(), [0.0]
    operations = timeline.operations
    for _ in range(rounds):
        for action in timeline.actions:
            for index in action.awaited_operations:
                now = max(now, device.operation_ends.get(index, 0.0))
            now += action.seconds
            for index in action.queued_operations:
                device.queue(index, operations[index], now)
            if action.ends_step:
                edges.append(max(now, device.last_end))
    return _differences(edges)


def steady_step_seconds(timeline: Timeline) -> float:
    """Simulate two rounds, and return the mean step time of the second, in seconds.

    In the second round, the loop is in a steady state. The result is at least `Timeline.least_seconds`. Without steps,
    it is 0.0.
    """
    step_seconds = simulate_steps(timeline, rounds=2)
    second_round = step_seconds[len(step_seconds) // 2 :]
    return max(timeline.least_seconds, sum(second_round) / len(second_round)) if second_round else 0.0


def least_step_seconds(timeline: Timeline) -> float:
    """Return the mean step time in seconds if all work overlaps as much as possible.

    This is the largest of these times per step: the work of the host, the work of each stream, the work of each copy
    engine, and `Timeline.least_seconds`.
    """
    steps = timeline.step_count
    if not steps:
        return 0.0
    host_seconds = sum(action.seconds for action in timeline.actions)
    stream_seconds: dict[int, float] = {}
    engine_seconds: dict[str, float] = {}
    for action in timeline.actions:
        for operation in (timeline.operations[index] for index in action.queued_operations):
            stream_seconds[operation.stream] = stream_seconds.get(operation.stream, 0.0) + operation.seconds
            if operation.engine != "compute":
                engine_seconds[operation.engine] = engine_seconds.get(operation.engine, 0.0) + operation.seconds
    busiest = max([host_seconds, *stream_seconds.values(), *engine_seconds.values()])
    return max(timeline.least_seconds, busiest / steps)


def _differences(edges: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(edges))
