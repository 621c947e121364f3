"""The timeline of a capture: host actions, queued operations, and waits in recorded steps."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.predict.calls import CudaCall, QueuedCalls
from forebay.doctor.predict.dependencies import find_releases, stream_gaps
from forebay.doctor.predict.host_time import WORK, HostInterval, host_intervals
from forebay.doctor.predict.recorded_calls import find_calls
from forebay.doctor.predict.timeline import DeviceEngine, DeviceOperation, HostAction, Timeline

__all__ = ["build_timeline", "select_typical_steps"]

MOST_OPERATIONS = 10_000  # of a timeline; this limits its steps, so that a simulation is fast
LARGEST_DEVIATION = 0.3  # share of the median step by which a typical step may differ from it
COPY_CALL_SECONDS = 3e-6  # host time to queue a copy before the wait for it
STAGING_STREAM = -2  # a stream for the preparation of data before its upload

_ENGINES: dict[int, DeviceEngine] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
}
_PRODUCTS = re.compile("gemm|gemv|cutlass|nvjet|matmul|conv|dot|flash|attention|cudnn", re.IGNORECASE)


def build_timeline(view: CaptureView) -> Timeline | None:
    """Build the timeline. Return None if the capture has no steps, or a GPU without a record."""
    if view.device is not None:
        return _with_device(view.device)
    return None if view.has_gpu or view.steps is None else _host_only(view)


def select_typical_steps(device_view: DeviceView) -> list[tuple[int, int]]:
    """Return recorded steps of similar length, as many as a timeline may hold."""
    steps = [*pairwise(device_view.edges.tolist())]
    whole = [step for step, is_whole in zip(steps, device_view.is_whole_step, strict=True) if is_whole]
    middle = median(end - start for start, end in whole)
    alike = [(start, end) for start, end in whole if abs(end - start - middle) <= LARGEST_DEVIATION * middle]
    most = max(2, int(MOST_OPERATIONS * len(steps) / max(1, len(device_view.operations))))
    if device_view.lags_behind:
        most = min(most, len(device_view.operations) // device_view.period)
    return (alike if len(alike) >= len(steps) / 2 else whole)[:most]


def _with_device(device_view: DeviceView) -> Timeline:
    """Build the timeline from a device record; operations are numbered in the order of queueing."""
    steps = [
        host_intervals(device_view.events, device_view.thread, *step) for step in select_typical_steps(device_view)
    ]
    queued = find_calls(device_view, steps)
    numbers = {place: at for at, place in enumerate(place for call in queued.calls for place in call.queues)}
    known = numbers | _matching_operations(device_view, queued, numbers)
    coming, actions = deque(queued.calls), []
    for pieces in steps:
        actions += [*_actions(pieces, coming, queued, known), HostAction(0.0, ends_step=True)]
    return Timeline(tuple(actions), tuple(_operations(device_view, queued, numbers, known)))


def _matching_operations(device_view: DeviceView, queued: QueuedCalls, numbers: dict[int, int]) -> dict[int, int]:
    """Map operations outside the timeline to the matching ones of the timeline's previous step.

    The simulation repeats the timeline, so the last step precedes the first.
    """
    asked = np.searchsorted(device_view.edges, queued.when, "right") - 1
    order = np.lexsort((device_view.operations["start"], queued.when))
    steps: dict[int, list[int]] = {}
    for place in order[queued.when[order] >= 0].tolist():
        steps.setdefault(int(asked[place]), []).append(place)
    kept = sorted({int(asked[place]) for place in numbers if place < len(asked)})
    found: dict[int, int] = {}
    for step in steps.keys() - kept:
        like = max((other for other in kept if other < step), default=kept[-1] if kept else step)
        pairs = zip(reversed(steps[step]), reversed(steps[like]), strict=False)
        found |= {place: numbers[other] for place, other in pairs if other in numbers}
    return found


def _host_only(view: CaptureView) -> Timeline:
    """Build a timeline without a device: each call takes its measured time."""
    assert view.steps is not None
    scale = view.step_seconds / view.steps.seconds if view.steps.seconds else 1.0
    actions: list[HostAction] = []
    for start, end in pairwise(view.steps.edges):
        pieces = host_intervals(view.capture.events, view.steps.thread, start, end)
        actions += [HostAction(piece.seconds * scale, line=piece.line, kind=piece.kind) for piece in pieces]
        actions.append(HostAction(0.0, ends_step=True))
    return Timeline(tuple(actions))


def _actions(
    pieces: Sequence[HostInterval], coming: deque[CudaCall], queued: QueuedCalls, numbers: dict[int, int]
) -> Iterator[HostAction]:
    """Split the host intervals of a step at the start and end of each call."""
    for piece in pieces:
        now = piece.start
        while coming and coming[0].start < piece.end:
            call = coming.popleft()
            if call.start > now:
                yield HostAction((call.start - now) / 1e9, line=piece.line, kind=piece.kind)
            yield from _call_actions(call, queued, piece, numbers)
            now = max(now, call.end)
        if piece.end > now:
            yield HostAction((piece.end - now) / 1e9, line=piece.line, kind=piece.kind)


def _call_actions(
    call: CudaCall, queued: QueuedCalls, piece: HostInterval, numbers: dict[int, int]
) -> Iterator[HostAction]:
    """Yield the actions of a call: it queues operations first, and then may wait."""
    own = call.own_nanoseconds(queued.ends) / 1e9
    kind, line = ("launch", -1) if call.launches or (piece.kind == WORK and call.queues) else (piece.kind, piece.line)
    queues = tuple(numbers[number] for number in call.queues)
    awaits = tuple(numbers[number] for number in call.awaits if number in numbers)
    if not awaits:
        before = min(own, (queued.at(call) - call.start) / 1e9)
        yield HostAction(before, queues, line=line, kind=kind)
        if own > before:
            yield HostAction(own - before, line=line, kind=kind)
        return
    if queues:
        yield HostAction(min(own, COPY_CALL_SECONDS), queues, line=line, kind=kind)
        own = max(0.0, own - COPY_CALL_SECONDS)
    yield HostAction(own, awaits=awaits, line=line, kind=kind, sleeps=call.sleeps)


def _operations(
    device_view: DeviceView, queued: QueuedCalls, numbers: dict[int, int], known: dict[int, int]
) -> Iterator[DeviceOperation]:
    """Yield the operations with their dependencies and latencies."""
    count = len(device_view.operations)
    released = {} if device_view.lags_behind else find_releases(device_view.operations, queued.when)
    turns = stream_gaps(device_view.operations, queued.when)
    products = [bool(_PRODUCTS.search(name)) for name in device_view.names]
    for place in numbers:
        if place >= count:  # this number stands for the preparation of a copy's data
            staging = queued.staged[place - count] / 1e9
            yield DeviceOperation(staging, STAGING_STREAM, line=int(device_view.lines[place - count]), pageable=True)
            continue
        record = device_view.operations[place]
        before, latency = released.get(place, (NO_MATCH, 0))
        if place in queued.staged:
            before, latency = place + count, 0
        copies = record["kind"] == RecordKind.MEMCPY
        yield DeviceOperation(
            seconds=(int(record["end"]) - int(record["start"])) / 1e9,
            stream=int(record["stream"]),
            engine=_ENGINES.get(int(record["what"]), "compute") if copies else "compute",
            line=int(device_view.lines[place]),
            nbytes=int(record["nbytes"]) if copies else 0,
            after=(known[before],) if before in known else (),
            gap=int(turns[place]) / 1e9,
            latency=latency / 1e9,
            pageable=bool(copies and MemoryKind.PAGEABLE in (record["source"], record["target"])),
            multiplies=not copies and products[record["name"]],
        )
