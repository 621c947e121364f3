"""The device ledger as rules look at it: what the device did in whole traced steps, for which line, and who kept it
waiting. Pure.

    view = case.device
    if view is not None:
        for copies in view.copies: ...   # of one line and direction: how often, how many bytes, from which memory
        for gap in view.gaps: ...        # the device stood still: for how long a step, because of what
        view.kernels_per_step, view.busy_share, view.coverage("host to device")
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NOBODY, calls_of, owners_of
from forebay.doctor.analyse.device_copies import DIRECTIONS, Copies, copies_of
from forebay.doctor.analyse.idle_time import WAY, Gap, charge_gaps, launching_between
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import Steps
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import MemoryKind, RecordKind
from forebay.doctor.model.events import Event, Kind

__all__ = ["DeviceView", "period_of", "view_of"]

FEWEST = 2  # whole steps, or nothing is said
AT_ONCE = 2_000  # nanoseconds from one operation to the next that lies ready, at most
BOUND = 0.9  # of the time busy: the device is what the loop goes at the pace of
WHOLE_LAG = 0.97  # of the operations of all steps: where it did less, the rest was still to come
WHOLE = 0.9  # of the operations of the median step: one with less was still under way when recording ended

CALLS = (RecordKind.RUNTIME, RecordKind.DRIVER)
KERNELS = (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL, RecordKind.GRAPH_TRACE, RecordKind.MEMSET)


class DeviceView:
    """Some whole steps, as the device saw them. Arrays are of RECORD; owners and lines are beside `operations`.

    `calls` are what the host asked CUDA for, on any thread, before these steps too: their work may have been left.
    """

    def __init__(self, capture: Capture, edges: Any, thread: int) -> None:
        assert capture.device is not None
        self.edges, self.thread = edges, thread
        self.names = capture.device.names
        self.events: Sequence[Event] = _near(capture.events, int(edges[0]), int(edges[-1]))
        records = capture.device.records
        before = records["start"] < edges[-1]
        self._records = records[before & (records["start"] >= edges[0])]
        self.calls = records[before & np.isin(records["kind"], CALLS)]
        self._lines = np.array([event.line for event in self.events] + [NOBODY])

    def __len__(self) -> int:
        """Steps."""
        return len(self.edges) - 1

    @property
    def seconds(self) -> float:
        """A step as it was while the device was recorded."""
        return float(self.edges[-1] - self.edges[0]) / 1e9 / len(self)

    @cached_property
    def operations(self) -> Any:
        """Kernels, memsets and copies."""
        return self._records[np.isin(self._records["kind"], (*KERNELS, RecordKind.MEMCPY))]

    @cached_property
    def syncs(self) -> Any:
        """Waits of the host's for the device, and of streams for each other, as the device counts them."""
        return self._records[self._records["kind"] == RecordKind.SYNCHRONIZATION]

    @cached_property
    def call_of(self) -> Any:
        """For each operation the place of its call, or -1."""
        return calls_of(self.operations, self.calls)

    @cached_property
    def asked(self) -> Any:
        """For each operation when its call began; where that was not recorded, when it began itself."""
        starts = self.operations["start"].astype(np.int64)
        called = self.calls["start"].astype(np.int64)
        return np.where(self.call_of >= 0, called[self.call_of], starts) if len(called) else starts

    @cached_property
    def are_whole(self) -> Any:
        """Of which steps the device has done all that they asked for, while it was recorded."""
        counts = np.diff(np.searchsorted(np.sort(self.asked), self.edges))
        return counts >= WHOLE * np.median(counts)

    @cached_property
    def owners(self) -> Any:
        """For each operation the place in `events` of what it belongs to, or -1."""
        return owners_of(self.operations, self.calls, self.call_of, self.events, self.thread)

    @cached_property
    def lines(self) -> Any:
        """For each operation the number of its line, or -1."""
        return self._lines[self.owners]

    @cached_property
    def are_kernels(self) -> Any:
        return np.isin(self.operations["kind"], KERNELS)

    @cached_property
    def are_pageable(self) -> Any:
        """Which are copies out of ordinary memory, or into it."""
        sides = (self.operations["source"], self.operations["target"])
        return ~self.are_kernels & np.logical_or(*(side == MemoryKind.PAGEABLE for side in sides))

    @property
    def kernels(self) -> Any:
        """With graphs and memsets; `name` is an index into `names`."""
        return self.operations[self.are_kernels]

    @property
    def kernels_per_step(self) -> float:
        return float(self.are_kernels.sum()) / self.done

    @cached_property
    def are_launches(self) -> Any:
        """Which calls queued a kernel or a graph of them."""
        return np.isin(np.arange(len(self.calls)), self.call_of[self.are_kernels])

    @cached_property
    def computing(self) -> Intervals:
        return self._when(self.are_kernels)

    @cached_property
    def working(self) -> Intervals:
        """When it computed or moved its own data about."""
        return self._when(self.are_kernels | self._are("device to device"))

    @cached_property
    def busy(self) -> Intervals:
        """When the device did anything at all."""
        return self._when(np.ones(len(self.operations), bool))

    @property
    def busy_share(self) -> float:
        return self.busy.length / float(self.edges[-1] - self.edges[0])

    @property
    def busy_seconds(self) -> float:
        """Of a step, without what the host copies itself, and with what the device takes from one operation to the
        next that lies ready: no step can be shorter for long, however far a loop runs ahead."""
        busy = self._when(~self.are_pageable)
        turns = busy.starts[1:] - busy.ends[:-1]
        at_once = turns[turns <= AT_ONCE]
        turning = float(np.median(at_once)) * len(turns) if len(at_once) else 0.0
        return (busy.length + turning) / 1e9 / len(self)

    def copying(self, direction: str) -> Intervals:
        return self._when(self._are(direction))

    @cached_property
    def period(self) -> int:
        """How many operations a step has, by when the same ones come again; 0 where they do not."""
        return period_of(self.operations, len(self.operations) / len(self))

    @property
    def done(self) -> float:
        """How many steps' work it did meanwhile: less than all of them, where a loop ran ahead of it and stopped."""
        return min(float(len(self)), len(self.operations) / self.period) if self.period else float(len(self))

    @property
    def lags(self) -> bool:
        """Whether the device does the work of earlier steps, because the loop runs ahead of it, and calls do not tell
        which."""
        return (
            not len(self.calls)
            and self.bound_seconds > 0
            and len(self.operations) < WHOLE_LAG * self.period * len(self)
        )

    @cached_property
    def bound_seconds(self) -> float:
        """A step by the device's own clock, where it has more to do than a loop that runs ahead waits for; else 0."""
        starts, period = self.operations["start"].astype(np.int64), self.period
        if not period or self.busy_share < BOUND or len(starts) <= period:
            return 0.0
        return float(np.median(starts[period:] - starts[:-period])) / 1e9

    @cached_property
    def copies(self) -> tuple[Copies, ...]:
        """By line and direction, the longest first."""
        return copies_of(self.operations, self.lines, np.flatnonzero(~self.are_kernels), len(self))

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """When the device stood still, by what kept it waiting; the longest first."""
        gaps = self.busy.rest(int(self.edges[0]), int(self.edges[-1]))
        queueing = self.calls[np.unique(self.call_of[self.call_of >= 0])]  # on any thread: the loop waits for some
        launching = launching_between(queueing["start"].astype(np.int64), queueing["end"].astype(np.int64))
        return charge_gaps(
            gaps, self.events, self.thread, len(self), launching=launching, queued=self._queued, pending=self.pending
        )

    def coverage(self, direction: str) -> float | None:
        """Which share of the bytes that crossed is some line's; None where none crossed."""
        copies = self._are(direction)
        nbytes = self.operations["nbytes"].astype(np.int64)
        total = int(nbytes[copies].sum())
        return int(nbytes[copies & (self.lines >= 0)].sum()) / total if total else None

    @property
    def _queued(self) -> Intervals:
        """When at least one operation had been asked for, could have been there, and had not begun."""
        known = self.call_of >= 0
        asked = self.calls["end"][self.call_of[known]] if len(self.calls) else self.operations["start"][known]
        return Intervals(asked.astype(np.int64) + WAY, self.operations["start"][known])

    @cached_property
    def pending(self) -> dict[int, Intervals]:
        """By line, when an upload had been asked for and its copy had not begun: somebody made it ready."""
        lines: dict[int, list[tuple[int, int]]] = {}
        for place in np.flatnonzero(self._are("host to device") & (self.owners >= 0)).tolist():
            event = self.events[self.owners[place]]
            if event.kind == Kind.UPLOAD:
                lines.setdefault(event.line, []).append((event.start, int(self.operations["start"][place])))
        return {line: Intervals(*zip(*when, strict=True)) for line, when in lines.items()}

    def _are(self, direction: str) -> Any:
        wanted = [kind for kind, name in DIRECTIONS.items() if name == direction]
        return ~self.are_kernels & np.isin(self.operations["what"], wanted)

    def _when(self, wanted: Any) -> Intervals:
        first, last = self.edges[0], self.edges[-1]
        found = self.operations[wanted]
        return Intervals(
            found["start"].astype(np.int64).clip(first, last), found["end"].astype(np.int64).clip(first, last)
        )


def view_of(capture: Capture, steps: Steps | None) -> DeviceView | None:
    """None where the device was not recorded, or not for as much as a few whole steps."""
    if capture.device is None or steps is None or len(capture.window.traced) <= FEWEST:
        return None
    edges = _whole(np.array(capture.window.traced, np.int64), capture.device.records)
    return DeviceView(capture, edges, steps.thread) if len(edges) > FEWEST else None


def _whole(edges: Any, records: Any) -> Any:
    """Without the last steps, where the device had not done all of their work when recording ended."""
    starts = np.sort(records["start"][np.isin(records["kind"], (*KERNELS, RecordKind.MEMCPY))])
    counts = np.diff(np.searchsorted(starts, edges))
    while len(counts) > FEWEST and counts[-1] < WHOLE * np.median(counts):
        edges, counts = edges[:-1], counts[:-1]
    return edges if counts.any() else edges[:0]


def _near(events: Sequence[Event], start: int, end: int) -> list[Event]:
    """What was going on between these times, and a little before: a copy may come after its call."""
    before = start - (end - start)
    return [event for event in events if event.end > before and event.start < end]


MOST_OPERATIONS = 20_000  # to look at
ALIKE = 0.97  # of the operations: some steps do a little more, as every hundredth that prints


def period_of(operations: Any, about: float) -> int:
    """The number nearest to `about`, or above it where the device lags behind; 0 where nothing comes again."""
    some = operations[:MOST_OPERATIONS]
    marks = np.stack([some["kind"], some["what"], some["name"], some["grid"][:, 0], some["nbytes"] % (1 << 31)], axis=1)
    _, kinds = np.unique(marks.astype(np.int64), axis=0, return_inverse=True)
    kinds = kinds.ravel()
    nearby = range(max(1, int(about * 0.8)), min(len(kinds) // 2, int(about * 3) + 2) + 1)
    for period in sorted(nearby, key=lambda period: abs(period - about)):
        if np.mean(kinds[period:] == kinds[:-period]) >= ALIKE:
            return period
    return 0
