"""Inferred CUDA calls for operations without a recorded call.

Such an operation counts as queued by its event, by the compiled call before it, or in the interval in which it began.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.calls import CudaCall, LoopIntervals, QueuedCalls, is_transfer
from forebay.doctor.predict.host_time import WAITS, HostInterval

__all__ = ["add_inferred_calls", "expected_starts"]

SHORTEST_STAGING_NS = 50_000  # between an upload call and its copy; in a longer time, data is prepared


def expected_starts(count: int, period: int, steps: Sequence[Sequence[HostInterval]]) -> Any:
    """Return when operations would begin without lag: spread evenly over each step."""
    step, place = np.divmod(np.arange(count), period)
    edges = np.array([[pieces[0].start, pieces[-1].end] for pieces in steps], np.int64)
    inside = step < len(steps)
    begin, end = edges[np.minimum(step, len(steps) - 1)].T
    return np.where(inside, begin + (end - begin) * place // period, NO_MATCH)


def add_inferred_calls(queued: QueuedCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add a call for every operation of these steps without a recorded call."""
    holding = loop.at(queued.starts)
    for number in np.flatnonzero((queued.when == NO_MATCH) & (holding >= 0)).tolist():
        piece, start = loop.pieces[holding[number]], int(queued.starts[number])
        owner = _owning_interval(device_view, loop, number, piece, start)
        if owner is not None:
            asked = min(start, owner.start if owner.kind in WAITS else owner.end - 1)
            staging = start - owner.end
            if owner.kind == EventKind.UPLOAD and staging > SHORTEST_STAGING_NS and not device_view.lags_behind:
                queued.staged[number] = staging
        else:
            asked = _queued_at(start, loop.runs, piece)
        queued.when[number] = asked
        made_ready = [number + len(queued.starts)] if number in queued.staged else []
        call = CudaCall(asked, asked, [*made_ready, number], launches=owner is None)
        queued.calls.append(call)


def _owning_interval(
    device_view: DeviceView, loop: LoopIntervals, number: int, piece: HostInterval, start: int
) -> HostInterval | None:
    """Return the interval of a copy's event. If the device lags, return a similar one of the same step."""
    place = int(device_view.event_of[number])
    if place < 0 or not is_transfer(device_view, number, place):
        return None
    if not device_view.lags_behind:
        own = loop.places.get(place)
        return own if own is not None and own.start <= start else None
    event = device_view.events[place]
    at = loop.pieces.index(piece)
    nearby = sorted(range(len(loop.pieces)), key=lambda other: abs(other - at))
    return next((p for p in map(loop.pieces.__getitem__, nearby) if (p.kind, p.line) == (event.kind, event.line)), None)


def _queued_at(start: int, runs: Sequence[HostInterval], piece: HostInterval) -> int:
    """Return when an operation was queued.

    That is inside the last compiled call, or when the operation began, or before an event that launches nothing.
    """
    before = next((run for run in reversed(runs) if run.start <= start), None)
    if before is not None:
        return min(start, before.end)
    return start if piece.place < 0 or piece.kind == EventKind.TRANSFORM else piece.start
