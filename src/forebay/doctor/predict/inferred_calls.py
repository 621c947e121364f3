"""Inferred CUDA calls, for operations without a recorded call.

If CUPTI did not record which call queued an operation, the doctor assumes a call: a copy is queued by the event that
makes it, and any other operation by the last compiled call before it. Without a compiled call before it, the operation
is queued in the host interval in which it starts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.calls import CudaCall, LoopCalls, LoopIntervals, is_transfer
from forebay.doctor.predict.host_time import WAIT_KINDS, HostInterval

__all__ = ["add_inferred_calls", "expected_starts"]

# Nanoseconds from the end of an upload event to the start of its copy. If the copy starts later, assume that another
# thread prepares its data in this time.
MIN_PREPARATION_NS = 50_000


def expected_starts(count: int, period: int, steps: Sequence[Sequence[HostInterval]]) -> Any:
    """Return start times in nanoseconds that are evenly spread over each step.

    These replace the recorded start times if `device_view.lags_behind`. `count` is the number of operations, and
    `period` the number of operations per step. Operations after the last step get NO_MATCH.
    """
    step, position = np.divmod(np.arange(count), period)
    edges = np.array([[intervals[0].start, intervals[-1].end] for intervals in steps], np.int64)
    is_inside = step < len(steps)
    start, end = edges[np.minimum(step, len(steps) - 1)].T
    return np.where(is_inside, start + (end - start) * position // period, NO_MATCH)


def add_inferred_calls(loop_calls: LoopCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add a call for each operation in `loop`'s intervals that has no recorded call."""
    interval_indices = loop.indices_at(loop_calls.start_times)
    for index in np.flatnonzero((loop_calls.queue_times == NO_MATCH) & (interval_indices >= 0)).tolist():
        interval, start = loop.intervals[interval_indices[index]], int(loop_calls.start_times[index])
        owner = _owning_interval(device_view, loop, index, interval, start)
        if owner is not None:
            # Assume that a read-back queues its copy at its start and then waits, and that any other transfer queues
            # its copy at its end.
            queue_time = min(start, owner.start if owner.kind in WAIT_KINDS else owner.end - 1)
            preparation = start - owner.end
            is_prepared = owner.kind == EventKind.UPLOAD and preparation > MIN_PREPARATION_NS
            if is_prepared and not device_view.lags_behind:
                loop_calls.preparation_ns[index] = preparation
        else:
            queue_time = _infer_queue_time(start, loop.compiled_calls, interval)
        loop_calls.queue_times[index] = queue_time
        # A preparation is an extra operation; see `LoopCalls` for its index.
        preparation_indices = [index + len(loop_calls.start_times)] if index in loop_calls.preparation_ns else []
        call = CudaCall(queue_time, queue_time, [*preparation_indices, index], launches=owner is None)
        loop_calls.calls.append(call)


def _owning_interval(
    device_view: DeviceView, loop: LoopIntervals, index: int, interval: HostInterval, start: int
) -> HostInterval | None:
    """Return the host interval of the event that made a copy, or None.

    `index` is the index of the operation, `start` its start time, and `interval` the host interval at this time. Return
    None if the operation is no copy, or if no event of the loop made it. If the device lags behind, `start` is an
    estimate, and the matched event may belong to another step. In this case, return the interval nearest to `interval`
    that has the kind and line of this event.
    """
    event_index = int(device_view.event_of[index])
    if event_index < 0 or not is_transfer(device_view, index, event_index):
        return None
    if not device_view.lags_behind:
        own = loop.by_event.get(event_index)
        return own if own is not None and own.start <= start else None
    event = device_view.events[event_index]
    position = loop.intervals.index(interval)
    nearest_first = sorted(range(len(loop.intervals)), key=lambda other: abs(other - position))
    candidates = map(loop.intervals.__getitem__, nearest_first)
    return next((other for other in candidates if (other.kind, other.line) == (event.kind, event.line)), None)


def _infer_queue_time(start: int, compiled_calls: Sequence[HostInterval], interval: HostInterval) -> int:
    """Return when an operation that started at `start`, inside `interval`, was probably queued.

    If a compiled call started before the operation, assume that the last such call queued it. The result is the end of
    this call or `start`, whichever is earlier. Otherwise the kind of `interval` decides:

    - TRANSFORM events, and work outside of all events, launch operations at any time. The result is `start`.
    - All other events launch no operations, so the host queued the operation earlier. The result is the start of
      `interval`.
    """
    previous = next((call for call in reversed(compiled_calls) if call.start <= start), None)
    if previous is not None:
        return min(start, previous.end)
    return start if interval.event_index < 0 or interval.kind == EventKind.TRANSFORM else interval.start
