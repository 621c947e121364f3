"""A view of the device record for the rules: copies, kernels and idle time in whole steps.

device_view = view.device
if device_view is not None:
    for copies in device_view.copies: ...      # by line and direction: calls, bytes and kind of memory
    for idle in device_view.idle_times: ...    # by cause: seconds per step in which the device was idle
    device_view.kernels_per_step, device_view.busy_share, device_view.coverage("host to device")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH, match_calls, match_events
from forebay.doctor.analyse.idle_time import (
    CALL_LATENCY_NS,
    IdleTime,
    QueueActivity,
    attribute_idle,
    launching_intervals,
)
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import Steps
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import ASYNC, CopyKind, MemoryKind, RecordKind
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["DeviceView", "build_device_view", "find_period"]

FEWEST_STEPS = 2  # whole steps; with fewer there is no device view
LONGEST_SWITCH_NS = 2_000  # from one operation to the next queued one
BOUND_SHARE = 0.9  # of the time busy; above it the device determines the step time
LAG_SHARE = 0.97  # of the operations of all steps; below it the device lags behind the loop
WHOLE_STEP_SHARE = 0.9  # of the operations of the median step; a step with fewer was cut off

MOST_COMPARED_OPERATIONS = 20_000  # to find the period
EQUAL_SHARE = 0.97  # of the operations; some steps do more, for example to print

DIRECTIONS: dict[int, str] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
    CopyKind.DEVICE_TO_DEVICE: "device to device",
}
CALLS = (RecordKind.RUNTIME, RecordKind.DRIVER)
KERNELS = (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL, RecordKind.GRAPH_TRACE, RecordKind.MEMSET)


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Similar copies of one line, in a mean step."""

    line: int  # index into the capture's lines; -1 if unknown
    direction: str  # host to device, device to host, device to device
    pageable: bool  # the host side is pageable memory
    asynchronous: bool  # the call asked not to wait; with pageable memory it waits anyway
    per_step: float
    nbytes: float
    seconds: float  # of copying on the device


class DeviceView:
    """Whole steps as the device recorded them.

    Arrays have the dtype RECORD. `event_of`, `lines` and the masks are parallel to `operations`. `calls` are the CUDA
    calls of all threads, including calls before these steps, because their work may run in these steps.
    """

    def __init__(self, capture: Capture, edges: Any, thread: int) -> None:
        assert capture.device is not None
        self.edges, self.thread = edges, thread
        self.names = capture.device.names
        self.events: Sequence[LedgerEvent] = _events_around(capture.events, int(edges[0]), int(edges[-1]))
        records = capture.device.records
        before = records["start"] < edges[-1]
        self._records = records[before & (records["start"] >= edges[0])]
        self.calls = records[before & np.isin(records["kind"], CALLS)]
        self._lines = np.array([event.line for event in self.events] + [NO_MATCH])

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.edges) - 1

    @property
    def seconds(self) -> float:
        """The mean duration of a recorded step."""
        return float(self.edges[-1] - self.edges[0]) / 1e9 / len(self)

    @cached_property
    def operations(self) -> Any:
        """Kernels, memsets and copies."""
        return self._records[np.isin(self._records["kind"], (*KERNELS, RecordKind.MEMCPY))]

    @cached_property
    def syncs(self) -> Any:
        """Records of waits: of the host for the device, and of streams for each other."""
        return self._records[self._records["kind"] == RecordKind.SYNCHRONIZATION]

    @cached_property
    def call_of(self) -> Any:
        """The index of the call of each operation, or -1."""
        return match_calls(self.operations, self.calls)

    @cached_property
    def called_at(self) -> Any:
        """When the call of each operation began; without a recorded call, when the operation began."""
        starts = self.operations["start"].astype(np.int64)
        called = self.calls["start"].astype(np.int64)
        return np.where(self.call_of >= 0, called[self.call_of], starts) if len(called) else starts

    @cached_property
    def is_whole_step(self) -> Any:
        """For which steps the record holds all operations."""
        counts = np.diff(np.searchsorted(np.sort(self.called_at), self.edges))
        return counts >= WHOLE_STEP_SHARE * np.median(counts)

    @cached_property
    def event_of(self) -> Any:
        """The index into `events` for each operation, or -1."""
        return match_events(self.operations, self.calls, self.call_of, self.events, self.thread)

    @cached_property
    def lines(self) -> Any:
        """The line of each operation, or -1."""
        return self._lines[self.event_of]

    @cached_property
    def is_kernel(self) -> Any:
        return np.isin(self.operations["kind"], KERNELS)

    @cached_property
    def is_pageable(self) -> Any:
        """Which operations copy from or to pageable memory."""
        sides = (self.operations["source"], self.operations["target"])
        return ~self.is_kernel & np.logical_or(*(side == MemoryKind.PAGEABLE for side in sides))

    @property
    def kernels(self) -> Any:
        """Kernels, graphs and memsets; `name` is an index into `names`."""
        return self.operations[self.is_kernel]

    @property
    def kernels_per_step(self) -> float:
        return float(self.is_kernel.sum()) / self.steps_done

    @cached_property
    def is_launch(self) -> Any:
        """Which calls queued a kernel or a graph."""
        return np.isin(np.arange(len(self.calls)), self.call_of[self.is_kernel])

    @cached_property
    def computing(self) -> Intervals:
        return self._when(self.is_kernel)

    @cached_property
    def working(self) -> Intervals:
        """When the device computed or copied within its own memory."""
        return self._when(self.is_kernel | self._are("device to device"))

    @cached_property
    def busy(self) -> Intervals:
        """When the device was not idle."""
        return self._when(np.ones(len(self.operations), bool))

    @property
    def busy_share(self) -> float:
        return self.busy.length / float(self.edges[-1] - self.edges[0])

    @property
    def busy_seconds(self) -> float:
        """The shortest sustained step: the work of the device and its switches between operations.

        Copies of pageable memory are excluded, because the host copies those bytes.
        """
        busy = self._when(~self.is_pageable)
        turns = busy.starts[1:] - busy.ends[:-1]
        at_once = turns[turns <= LONGEST_SWITCH_NS]
        turning = float(np.median(at_once)) * len(turns) if len(at_once) else 0.0
        return (busy.length + turning) / 1e9 / len(self)

    def copying(self, direction: str) -> Intervals:
        return self._when(self._are(direction))

    @cached_property
    def period(self) -> int:
        """The number of operations after which the sequence repeats; 0 if it does not repeat."""
        return find_period(self.operations, len(self.operations) / len(self))

    @property
    def steps_done(self) -> float:
        """The steps whose work the device did; fewer than recorded if the loop ran ahead."""
        return min(float(len(self)), len(self.operations) / self.period) if self.period else float(len(self))

    @property
    def lags_behind(self) -> bool:
        """Whether the device does the work of earlier steps, and no recorded call shows of which."""
        return (
            not len(self.calls)
            and self.bound_seconds > 0
            and len(self.operations) < LAG_SHARE * self.period * len(self)
        )

    @cached_property
    def bound_seconds(self) -> float:
        """The step time of a device that limits the loop, from the repetition of its operations; else 0."""
        starts, period = self.operations["start"].astype(np.int64), self.period
        if not period or self.busy_share < BOUND_SHARE or len(starts) <= period:
            return 0.0
        return float(np.median(starts[period:] - starts[:-period])) / 1e9

    @cached_property
    def copies(self) -> tuple[CopyGroup, ...]:
        """Copies by line and direction, longest first."""
        return _group_copies(self.operations, self.lines, np.flatnonzero(~self.is_kernel), len(self))

    @cached_property
    def idle_times(self) -> tuple[IdleTime, ...]:
        """Idle time of the device by cause, longest first."""
        gaps = self.busy.gaps_between(int(self.edges[0]), int(self.edges[-1]))
        # Calls of all threads count, because the loop waits for some of them.
        queueing = self.calls[np.unique(self.call_of[self.call_of >= 0])]
        launching = launching_intervals(queueing["start"].astype(np.int64), queueing["end"].astype(np.int64))
        own = [event for event in self.events if event.thread == self.thread]
        activity = QueueActivity(launching, self._queued, self.upload_preparations)
        return attribute_idle(gaps, own, len(self), activity)

    def coverage(self, direction: str) -> float | None:
        """Return the share of transferred bytes with a known line; None without transfers."""
        copies = self._are(direction)
        nbytes = self.operations["nbytes"].astype(np.int64)
        total = int(nbytes[copies].sum())
        return int(nbytes[copies & (self.lines >= 0)].sum()) / total if total else None

    @property
    def _queued(self) -> Intervals:
        """When at least one operation was in the queue of the device and had not begun."""
        known = self.call_of >= 0
        asked = self.calls["end"][self.call_of[known]] if len(self.calls) else self.operations["start"][known]
        return Intervals(asked.astype(np.int64) + CALL_LATENCY_NS, self.operations["start"][known])

    @cached_property
    def upload_preparations(self) -> dict[int, Intervals]:
        """By line, the time between an upload call and its copy, in which its data is prepared."""
        lines: dict[int, list[tuple[int, int]]] = {}
        for place in np.flatnonzero(self._are("host to device") & (self.event_of >= 0)).tolist():
            event = self.events[self.event_of[place]]
            if event.kind == EventKind.UPLOAD:
                lines.setdefault(event.line, []).append((event.start, int(self.operations["start"][place])))
        return {line: Intervals(*zip(*when, strict=True)) for line, when in lines.items()}

    def _are(self, direction: str) -> Any:
        wanted = [kind for kind, name in DIRECTIONS.items() if name == direction]
        return ~self.is_kernel & np.isin(self.operations["what"], wanted)

    def _when(self, wanted: Any) -> Intervals:
        first, last = self.edges[0], self.edges[-1]
        found = self.operations[wanted]
        return Intervals(
            found["start"].astype(np.int64).clip(first, last), found["end"].astype(np.int64).clip(first, last)
        )


def build_device_view(capture: Capture, steps: Steps | None) -> DeviceView | None:
    """Build the view; None without a record of a few whole steps."""
    if capture.device is None or steps is None or len(capture.window.traced) <= FEWEST_STEPS:
        return None
    edges = _whole_steps(np.array(capture.window.traced, np.int64), capture.device.records)
    return DeviceView(capture, edges, steps.thread) if len(edges) > FEWEST_STEPS else None


def find_period(operations: Any, about: float) -> int:
    """Return the period of the operations nearest to `about`; 0 if they do not repeat.

    It is above `about` if the device lags behind the loop.
    """
    some = operations[:MOST_COMPARED_OPERATIONS]
    marks = np.stack([some["kind"], some["what"], some["name"], some["grid"][:, 0], some["nbytes"] % (1 << 31)], axis=1)
    _, kinds = np.unique(marks.astype(np.int64), axis=0, return_inverse=True)
    kinds = kinds.ravel()
    nearby = range(max(1, int(about * 0.8)), min(len(kinds) // 2, int(about * 3) + 2) + 1)
    for period in sorted(nearby, key=lambda period: abs(period - about)):
        if np.mean(kinds[period:] == kinds[:-period]) >= EQUAL_SHARE:
            return period
    return 0


def _whole_steps(edges: Any, records: Any) -> Any:
    """Remove the last steps if the record ended before their work did."""
    starts = np.sort(records["start"][np.isin(records["kind"], (*KERNELS, RecordKind.MEMCPY))])
    counts = np.diff(np.searchsorted(starts, edges))
    while len(counts) > FEWEST_STEPS and counts[-1] < WHOLE_STEP_SHARE * np.median(counts):
        edges, counts = edges[:-1], counts[:-1]
    return edges if counts.any() else edges[:0]


def _events_around(events: Sequence[LedgerEvent], start: int, end: int) -> list[LedgerEvent]:
    """Return the events in this time and shortly before, since a copy may follow its call late."""
    before = start - (end - start)
    return [event for event in events if event.end > before and event.start < end]


def _group_copies(operations: Any, lines: Any, places: Any, steps: int) -> tuple[CopyGroup, ...]:
    """Group the copies at these indices, longest first."""
    groups: dict[tuple[int, str, bool, bool], list[int]] = {}
    for place in places.tolist():
        groups.setdefault(_group_key(operations[place], int(lines[place])), []).append(place)
    found = [_copy_group(key, operations[np.array(same)], steps) for key, same in groups.items()]
    return tuple(sorted(found, key=lambda copies: -copies.seconds))


def _group_key(copy: Any, line: int) -> tuple[int, str, bool, bool]:
    direction = DIRECTIONS.get(int(copy["what"]), "elsewhere")
    host = copy["target"] if direction == "device to host" else copy["source"]
    return line, direction, bool(host == MemoryKind.PAGEABLE), bool(copy["flags"] & ASYNC)


def _copy_group(key: tuple[int, str, bool, bool], found: Any, steps: int) -> CopyGroup:
    lasted = float((found["end"].astype(np.int64) - found["start"].astype(np.int64)).sum()) / 1e9
    return CopyGroup(*key, len(found) / steps, float(found["nbytes"].sum()) / steps, lasted / steps)
