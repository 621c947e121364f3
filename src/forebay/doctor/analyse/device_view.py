"""The device view: copies, kernels and idle time in the recorded steps, for the rules.

A rule reads the device view of a CaptureView `view` like this:

    device_view = view.device
    if device_view is not None:
        for idle in device_view.idle_times: ...    # one cause and line: seconds per step in which the device was idle
        device_view.kernels_per_step, device_view.busy_share, device_view.coverage("host to device")
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH, match_calls, match_events
from forebay.doctor.analyse.device_lag import KERNELS, find_lag, find_period
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
from forebay.doctor.model.device_records import CALL_KINDS, CopyKind, MemoryKind, RecordKind, mask_memory_calls
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["MAX_SWITCH_NS", "DeviceView", "build_device_view"]

MIN_STEPS = 2  # complete steps; with fewer there is no device view
MAX_SWITCH_NS = 2_000  # nanoseconds within which the device starts a queued operation after the previous one
BOUND_SHARE = 0.9  # of the recorded time; if the device is busy for this share, it determines the step time
LAG_SHARE = 0.97  # of the operations that the recorded steps queue; if fewer ran, the device lags behind the loop
WHOLE_STEP_SHARE = 0.9  # of the number of operations of the median step; a step with fewer is incomplete
# Times the median step; a longer first step is removed. In two measurements, a first step took 10 and 18 times the
# median step, because the recording started in it. Other first steps took at most 4 times the median step.
LONG_FIRST_STEP = 8.0
DIRECTIONS: dict[int, str] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
    CopyKind.DEVICE_TO_DEVICE: "device to device",
}


class DeviceView:
    """The device operations and CUDA calls in the recorded steps.

    `edges` are times in nanoseconds: the start of each step, and the end of the last. `thread` is the loop's thread.
    Arrays of records have the dtype RECORD. `call_of`, `event_of`, `lines`, `is_kernel` and `is_pageable` have one
    entry per operation. `calls` are the CUDA calls of all threads, except calls that only allocate or free memory.
    Calls before these steps are included, because operations that they queued may run in these steps.
    """

    def __init__(self, capture: Capture, edges: Any, thread: int) -> None:
        assert capture.device is not None
        self.edges, self.thread = edges, thread
        self.names = capture.device.names
        self.events: Sequence[LedgerEvent] = _events_around(capture.events, int(edges[0]), int(edges[-1]))
        records = capture.device.records
        is_before_end = records["start"] < edges[-1]
        self._records = records[is_before_end & (records["start"] >= edges[0])]
        self.calls = records[is_before_end & np.isin(records["kind"], CALL_KINDS) & ~mask_memory_calls(records)]
        traced = np.array(capture.window.traced, np.int64)
        self._lag = find_lag(records[is_before_end], self.calls, traced[traced <= edges[-1]])
        self._lines = np.array([event.line for event in self.events] + [NO_MATCH])

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.edges) - 1

    @property
    def seconds(self) -> float:
        """The mean duration of a recorded step, in seconds."""
        return float(self.edges[-1] - self.edges[0]) / 1e9 / len(self)

    @cached_property
    def operations(self) -> Any:
        """The records of kernels, graphs, memsets and copies."""
        return self._records[np.isin(self._records["kind"], (*KERNELS, RecordKind.MEMCPY))]

    @cached_property
    def syncs(self) -> Any:
        """The waits of the host for the device, and of streams for other streams."""
        return self._records[self._records["kind"] == RecordKind.SYNCHRONIZATION]

    @cached_property
    def call_of(self) -> Any:
        """The index into `calls` for each operation, or -1."""
        return match_calls(self.operations, self.calls)

    @cached_property
    def call_starts(self) -> Any:
        """The start of each operation's call, or of the operation if no call was recorded."""
        operation_starts = self.operations["start"].astype(np.int64)
        call_starts = self.calls["start"].astype(np.int64)
        if not len(call_starts):
            return operation_starts
        return np.where(self.call_of >= 0, call_starts[self.call_of], operation_starts)

    @cached_property
    def is_whole_step(self) -> Any:
        """Mask of the steps that queued at least WHOLE_STEP_SHARE of the median number of operations.

        If the device lags behind, only the steps that it finished count, or the first step if it finished none.
        """
        if self._lag:
            is_finished = self.edges[1:] <= self._lag.finished_until
            return is_finished if is_finished.any() else np.arange(len(self)) < 1
        counts = np.diff(np.searchsorted(np.sort(self.call_starts), self.edges))
        return counts >= WHOLE_STEP_SHARE * np.median(counts)

    @cached_property
    def event_of(self) -> Any:
        """The index into `events` for each operation, or -1."""
        return match_events(self.operations, self.calls, self.call_of, self.events, self.thread)

    @cached_property
    def lines(self) -> Any:
        """The index into the lines of the capture for each operation, or -1."""
        return self._lines[self.event_of]

    @cached_property
    def is_kernel(self) -> Any:
        """Mask of the kernels, graphs and memsets."""
        return np.isin(self.operations["kind"], KERNELS)

    @cached_property
    def is_pageable(self) -> Any:
        """Mask of the copies from or to pageable memory."""
        sides = (self.operations["source"], self.operations["target"])
        return ~self.is_kernel & np.logical_or(*(side == MemoryKind.PAGEABLE for side in sides))

    @property
    def kernels(self) -> Any:
        """The records of kernels, graphs and memsets; their `name` is an index into `names`."""
        return self.operations[self.is_kernel]

    @property
    def kernels_per_step(self) -> float:
        return float(self.is_kernel.sum()) / self.steps_done

    @cached_property
    def is_launch(self) -> Any:
        """Mask of the calls that queued a kernel, a graph or a memset."""
        return np.isin(np.arange(len(self.calls)), self.call_of[self.is_kernel])

    @cached_property
    def computing_intervals(self) -> Intervals:
        """When a kernel, a graph or a memset ran."""
        return self.intervals_of(self.is_kernel)

    @cached_property
    def working_intervals(self) -> Intervals:
        """When the device computed or copied within its own memory."""
        return self.intervals_of(self.is_kernel | self._mask_copies("device to device"))

    @cached_property
    def busy_intervals(self) -> Intervals:
        """When the device computed or copied."""
        return self.intervals_of(np.ones(len(self.operations), bool))

    @property
    def busy_share(self) -> float:
        """The share of the recorded time in which the device was busy."""
        return self.busy_intervals.length / float(self.edges[-1] - self.edges[0])

    @property
    def busy_seconds(self) -> float:
        """The seconds per step that the device needs for operations and for switches between them.

        Copies from or to pageable memory are excluded, because they wait for the host.
        """
        busy = self.intervals_of(~self.is_pageable)
        gaps = busy.starts[1:] - busy.ends[:-1]
        switches = gaps[gaps <= MAX_SWITCH_NS]
        # A longer gap contains one switch and idle time. So each gap, short or long, counts as one median switch.
        switch_ns = float(np.median(switches)) * len(gaps) if len(switches) else 0.0
        return (busy.length + switch_ns) / 1e9 / self.steps_done

    def copying(self, direction: str) -> Intervals:
        """Return when the device copied in this direction, one of DIRECTIONS."""
        return self.intervals_of(self._mask_copies(direction))

    @cached_property
    def period(self) -> int:
        """The number of operations after which their sequence repeats; 0 if it does not repeat."""
        if self._lag:
            return round(self._lag.queued)
        return find_period(self.operations, len(self.operations) / len(self))

    @property
    def steps_done(self) -> float:
        """The number of steps that the device executed; below `len(self)` if it lags behind."""
        return min(float(len(self)), len(self.operations) / self.period) if self.period else float(len(self))

    @property
    def lags_behind(self) -> bool:
        """Whether the device lags behind, and no recorded call shows which step queued its work."""
        return (
            not len(self.calls)
            and self.bound_seconds > 0
            and len(self.operations) < LAG_SHARE * self.period * len(self)
        )

    @cached_property
    def bound_seconds(self) -> float:
        """The seconds after which operations repeat, if the device determines the step time; else 0."""
        starts, period = self.operations["start"].astype(np.int64), self.period
        # The device may have been idle at first, because it had finished its work when the recording started.
        recorded = float(self.edges[-1] - max(self.edges[0], starts[0]))
        if self.busy_intervals.length < BOUND_SHARE * recorded:
            return 0.0
        if self._lag and len(starts) <= period:
            return recorded / 1e9 / self.steps_done
        if not period or len(starts) <= period:
            return 0.0
        return float(np.median(starts[period:] - starts[:-period])) / 1e9

    @property
    def copied_nbytes(self) -> float:
        """The bytes that the copies of a step transfer."""
        return float(self.operations["nbytes"][~self.is_kernel].sum()) / self.steps_done

    @cached_property
    def idle_times(self) -> tuple[IdleTime, ...]:
        """The idle time of the device by cause and line, longest first."""
        gaps = self.busy_intervals.gaps_between(int(self.edges[0]), int(self.edges[-1]))
        # Use the calls of all threads, because the loop may wait for another thread that queues work.
        queueing_calls = self.calls[np.unique(self.call_of[self.call_of >= 0])]
        launching = launching_intervals(
            queueing_calls["start"].astype(np.int64), queueing_calls["end"].astype(np.int64)
        )
        loop_events = [event for event in self.events if event.thread == self.thread]
        activity = QueueActivity(launching, self._queued, self.upload_preparations)
        return attribute_idle(gaps, loop_events, len(self), activity)

    def coverage(self, direction: str) -> float | None:
        """Return the share of bytes copied in this direction by known lines; None without copies."""
        is_transfer = self._mask_copies(direction)
        nbytes = self.operations["nbytes"].astype(np.int64)
        total = int(nbytes[is_transfer].sum())
        return int(nbytes[is_transfer & (self.lines >= 0)].sum()) / total if total else None

    @property
    def _queued(self) -> Intervals:
        """When operations were queued: from CALL_LATENCY_NS after their calls until their starts."""
        has_call = self.call_of >= 0
        queued_at = self.calls["end"][self.call_of[has_call]] if len(self.calls) else self.operations["start"][has_call]
        return Intervals(queued_at.astype(np.int64) + CALL_LATENCY_NS, self.operations["start"][has_call])

    @cached_property
    def upload_preparations(self) -> dict[int, Intervals]:
        """For each line, the times from the start of an upload event to its copy."""
        lines: dict[int, list[tuple[int, int]]] = {}
        for index in np.flatnonzero(self._mask_copies("host to device") & (self.event_of >= 0)).tolist():
            event = self.events[self.event_of[index]]
            if event.kind == EventKind.UPLOAD:
                lines.setdefault(event.line, []).append((event.start, int(self.operations["start"][index])))
        return {line: Intervals(*zip(*preparations, strict=True)) for line, preparations in lines.items()}

    def intervals_of(self, mask: Any) -> Intervals:
        """Return when the operations in the mask ran, clipped to the recorded steps."""
        selected, first, last = self.operations[mask], self.edges[0], self.edges[-1]
        return Intervals(*(selected[name].astype(np.int64).clip(first, last) for name in ("start", "end")))

    def _mask_copies(self, direction: str) -> Any:
        """Return a mask of the copies in this direction."""
        kinds = [kind for kind, name in DIRECTIONS.items() if name == direction]
        return ~self.is_kernel & np.isin(self.operations["what"], kinds)


def build_device_view(capture: Capture, steps: Steps | None) -> DeviceView | None:
    """Build the view; return None if too few complete steps were recorded on the device.

    Also return None if no operation is between the first and the last step, as in a damaged capture with steps in the
    wrong order.
    """
    if capture.device is None or steps is None or len(capture.window.traced) <= MIN_STEPS:
        return None
    edges = _remove_incomplete_steps(np.array(capture.window.traced, np.int64), capture.device.records)
    device_view = DeviceView(capture, edges, steps.thread) if len(edges) > MIN_STEPS else None
    return device_view if device_view is not None and len(device_view.operations) else None


def _remove_incomplete_steps(edges: Any, records: Any) -> Any:
    """Return the edges without a long first step and without incomplete last steps.

    A first step of more than LONG_FIRST_STEP median steps is long. A step is incomplete if fewer than WHOLE_STEP_SHARE
    of the operations of the median step ran in it. Return no edges if nothing ran on the device.
    """
    durations = np.diff(edges)
    if durations[0] > LONG_FIRST_STEP * np.median(durations) and len(durations) > MIN_STEPS:
        edges = edges[1:]
    starts = np.sort(records["start"][np.isin(records["kind"], (*KERNELS, RecordKind.MEMCPY))])
    counts = np.diff(np.searchsorted(starts, edges))
    while len(counts) > MIN_STEPS and counts[-1] < WHOLE_STEP_SHARE * np.median(counts):
        edges, counts = edges[:-1], counts[:-1]
    return edges if counts.any() else edges[:0]


def _events_around(events: Sequence[LedgerEvent], start: int, end: int) -> list[LedgerEvent]:
    """Return the events from `start` to `end`, and those shortly before `start`.

    The earlier events are included because their copies may run after `start`. They end within a time before `start`
    that is as long as the time from `start` to `end`.
    """
    before = start - (end - start)
    return [event for event in events if event.end > before and event.start < end]
