"""The timeline of a capture: host actions, queued operations, and waits in recorded steps."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import count_blocks
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.calls import CudaCall, LoopCalls
from forebay.doctor.predict.dependencies import find_releases, merge_serial_streams, stream_gaps
from forebay.doctor.predict.host_time import WORK, HostInterval, host_intervals
from forebay.doctor.predict.recorded_calls import find_calls
from forebay.doctor.predict.timeline import DeviceEngine, DeviceOperation, HostAction, Timeline

__all__ = ["background_seconds", "build_timeline", "select_typical_steps"]

MAX_OPERATIONS = 10_000  # per timeline; limits the number of its steps, so that a simulation is fast
MAX_DEVIATION = 0.3  # share of the median step time; a typical step differs from the median by at most this share
COPY_CALL_SECONDS = 3e-6  # host time to queue a copy, before the call waits for the copy
PREPARATION_STREAM = -2  # simulated stream for the preparation of data before its upload

_ENGINES: dict[int, DeviceEngine] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
}
_MATRIX_PRODUCTS = re.compile("gemm|gemv|cutlass|nvjet|matmul|conv|dot|flash|attention|cudnn", re.IGNORECASE)


def build_timeline(view: CaptureView) -> Timeline | None:
    """Build the timeline of a capture; None without steps.

    Without device records, the timeline has only the time of the host, which includes its waits for a device.
    """
    if view.device is not None:
        return _device_timeline(view.device)
    return None if view.steps is None else _host_timeline(view)


def select_typical_steps(device_view: DeviceView) -> list[tuple[int, int]]:
    """Return start and end of recorded steps with typical length, in nanoseconds.

    If fewer than half of all steps are typical, the result also has complete steps of other lengths. MAX_OPERATIONS
    limits the number of steps, but two steps are always allowed. If the device lags behind, the result has at most as
    many steps as the device executed.
    """
    steps = [*pairwise(device_view.edges.tolist())]
    whole = [step for step, is_whole in zip(steps, device_view.is_whole_step, strict=True) if is_whole]
    median_length = median(end - start for start, end in whole)
    largest_difference = MAX_DEVIATION * median_length
    typical = [(start, end) for start, end in whole if abs(end - start - median_length) <= largest_difference]
    most_steps = max(2, int(MAX_OPERATIONS * len(steps) / max(1, len(device_view.operations))))
    if device_view.lags_behind:
        most_steps = min(most_steps, len(device_view.operations) // device_view.period)
    return (typical if len(typical) >= len(steps) / 2 else whole)[:most_steps]


def _device_timeline(device_view: DeviceView) -> Timeline:
    """Build the timeline from device records; operations are numbered in the order of queueing."""
    steps = [
        host_intervals(device_view.events, device_view.thread, *step) for step in select_typical_steps(device_view)
    ]
    loop_calls = find_calls(device_view, steps)
    queued = (index for call in loop_calls.calls for index in call.queued_operations)
    numbers = {index: number for number, index in enumerate(queued)}  # index in the device view -> number in timeline
    # Operations of omitted steps get the numbers of matching operations.
    known_numbers = numbers | _matching_operations(device_view, loop_calls, numbers)
    remaining_calls, actions = deque(loop_calls.calls), []
    for intervals in steps:
        actions += [*_actions(intervals, remaining_calls, loop_calls, known_numbers), HostAction(0.0, ends_step=True)]
    return Timeline(tuple(actions), tuple(_operations(device_view, loop_calls, numbers, known_numbers)))


def _matching_operations(device_view: DeviceView, loop_calls: LoopCalls, numbers: dict[int, int]) -> dict[int, int]:
    """Return index -> number of the matching operation, for operations of omitted steps.

    The matching operation is in the previous step of the timeline, at the same position counted from the end of the
    step. The simulation repeats the timeline, so the last step precedes the first.
    """
    step_of = np.searchsorted(device_view.edges, loop_calls.queue_times, "right") - 1
    order = np.lexsort((device_view.operations["start"], loop_calls.queue_times))
    operations_by_step: dict[int, list[int]] = {}
    for index in order[loop_calls.queue_times[order] >= 0].tolist():
        operations_by_step.setdefault(int(step_of[index]), []).append(index)
    timeline_steps = sorted({int(step_of[index]) for index in numbers if index < len(step_of)})
    matches: dict[int, int] = {}
    for step in operations_by_step.keys() - timeline_steps:
        last_step = timeline_steps[-1] if timeline_steps else step
        previous = max((other for other in timeline_steps if other < step), default=last_step)
        pairs = zip(reversed(operations_by_step[step]), reversed(operations_by_step[previous]), strict=False)
        matches |= {index: numbers[other] for index, other in pairs if other in numbers}
    return matches


def _host_timeline(view: CaptureView) -> Timeline:
    """Build a timeline without a device, scaled to the unprofiled step time.

    The timeline has all steps, including long steps, so that rare calls keep their share of the time.
    """
    assert view.steps is not None
    mean_seconds = (view.steps.end - view.steps.start) / 1e9 / len(view.steps)
    scale = view.step_seconds / mean_seconds if mean_seconds else 1.0
    actions: list[HostAction] = []
    for start, end in pairwise(view.steps.edges):
        intervals = host_intervals(view.capture.events, view.steps.thread, start, end)
        actions += [HostAction(each.seconds * scale, line=each.line, kind=each.kind) for each in intervals]
        actions.append(HostAction(0.0, ends_step=True))
    producers = min(view.step_seconds, background_seconds(view) * scale)
    return Timeline(tuple(actions), producer_seconds=producers)


def background_seconds(view: CaptureView) -> float:
    """Return the seconds per profiled step in which other threads make batches.

    Time in which several threads make batches counts once. They may be one producer, because a loader may start a new
    thread in each epoch. Without such a thread, return 0.0.
    """
    steps = view.steps
    if steps is None:
        return 0.0
    events = [event for event in view.events_of(EventKind.PREPARE) if event.thread != steps.thread]
    busy = Intervals([event.start for event in events], [event.end for event in events])
    return float(busy.covered_lengths([steps.start], [steps.end])[0]) / 1e9 / len(steps)


def _actions(
    intervals: Sequence[HostInterval],
    remaining_calls: deque[CudaCall],
    loop_calls: LoopCalls,
    numbers: dict[int, int],
) -> Iterator[HostAction]:
    """Yield the actions of a step: its host intervals, split at its CUDA calls.

    This removes the calls of the step from `remaining_calls`.
    """
    for interval in intervals:
        now = interval.start
        while remaining_calls and remaining_calls[0].start < interval.end:
            call = remaining_calls.popleft()
            if call.start > now:
                yield HostAction((call.start - now) / 1e9, line=interval.line, kind=interval.kind)
            yield from _call_actions(call, loop_calls, interval, numbers)
            now = max(now, call.end)
        if interval.end > now:
            yield HostAction((interval.end - now) / 1e9, line=interval.line, kind=interval.kind)


def _call_actions(
    call: CudaCall, loop_calls: LoopCalls, interval: HostInterval, numbers: dict[int, int]
) -> Iterator[HostAction]:
    """Yield the actions of a call, which first queues operations, and then may wait."""
    own_seconds = call.own_nanoseconds(loop_calls.end_times) / 1e9
    is_launch = call.launches or (interval.kind == WORK and call.queued_operations)
    kind, line = ("launch", -1) if is_launch else (interval.kind, interval.line)
    queued = tuple(numbers[index] for index in call.queued_operations)
    awaited = tuple(numbers[index] for index in call.awaited_operations if index in numbers)
    if not awaited:
        before = min(own_seconds, (loop_calls.first_queue_time(call) - call.start) / 1e9)
        yield HostAction(before, queued, line=line, kind=kind)
        if own_seconds > before:
            yield HostAction(own_seconds - before, line=line, kind=kind)
        return
    if queued:
        yield HostAction(min(own_seconds, COPY_CALL_SECONDS), queued, line=line, kind=kind)
        own_seconds = max(0.0, own_seconds - COPY_CALL_SECONDS)
    yield HostAction(own_seconds, awaited_operations=awaited, line=line, kind=kind, sleeps=call.sleeps)


def _operations(
    device_view: DeviceView, loop_calls: LoopCalls, numbers: dict[int, int], known_numbers: dict[int, int]
) -> Iterator[DeviceOperation]:
    """Yield the operations in the order of `numbers`, with their dependencies and latencies."""
    count = len(device_view.operations)
    operations = merge_serial_streams(device_view.operations)
    releases = {} if device_view.lags_behind else find_releases(operations, loop_calls.queue_times)
    gaps = stream_gaps(operations, loop_calls.queue_times)
    blocks = count_blocks(device_view.operations)
    is_product = [bool(_MATRIX_PRODUCTS.search(name)) for name in device_view.names]
    for index in numbers:
        if index >= count:  # not a device record: this index means the preparation of copy `index - count`
            seconds, line = loop_calls.preparation_ns[index - count] / 1e9, int(device_view.lines[index - count])
            yield DeviceOperation(seconds, PREPARATION_STREAM, line=line, is_pageable=True)
            continue
        record = operations[index]
        dependency, latency_ns = releases.get(index, (NO_MATCH, 0))
        if index in loop_calls.preparation_ns:
            dependency, latency_ns = index + count, 0
        is_copy = record["kind"] == RecordKind.MEMCPY
        yield DeviceOperation(
            seconds=(int(record["end"]) - int(record["start"])) / 1e9,
            stream=int(record["stream"]),
            engine=_ENGINES.get(int(record["what"]), "compute") if is_copy else "compute",
            line=int(device_view.lines[index]),
            nbytes=int(record["nbytes"]) if is_copy else 0,
            dependencies=(known_numbers[dependency],) if dependency in known_numbers else (),
            gap_seconds=int(gaps[index]) / 1e9,
            latency_seconds=latency_ns / 1e9,
            is_pageable=bool(is_copy and MemoryKind.PAGEABLE in (record["source"], record["target"])),
            is_matrix_product=not is_copy and is_product[record["name"]],
            name="" if is_copy else device_view.names[record["name"]],
            blocks=0 if is_copy else int(blocks[index]),
        )
