"""The calls of the loop that queue each operation, and the operations that each call waits for.

Recorded CUDA calls show both. A copy that another thread makes for an event of the loop counts as queued by that event.
Calls without a record are inferred. An event that reads a value without a recorded wait waits for the last operation
that ended during the event.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import NO_MATCH, THREAD_ID_MASK
from forebay.doctor.analyse.blocking_copies import CLOCK_SLACK_NS, mask_batch_fetches, mask_blocking_copies
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.calls import CudaCall, LoopIntervals, QueuedCalls, is_transfer
from forebay.doctor.predict.host_time import WAITS, HostInterval
from forebay.doctor.predict.inferred_calls import add_inferred_calls, expected_starts

__all__ = ["find_calls"]

# Values of CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_*
_EVENT_WAIT, _STREAM_WAIT, _DEVICE_WAIT = 1, 3, 4
_HOST_WAITS = (_EVENT_WAIT, _STREAM_WAIT, _DEVICE_WAIT)


def find_calls(device_view: DeviceView, steps: Sequence[Sequence[HostInterval]]) -> QueuedCalls:
    """Return all calls of the loop's thread in these steps."""
    loop = LoopIntervals([piece for pieces in steps for piece in pieces])
    starts, ends = device_view.operations["start"].astype(np.int64), device_view.operations["end"].astype(np.int64)
    when = np.full(len(starts), NO_MATCH, np.int64)
    queued = QueuedCalls([], when, starts, np.concatenate([ends, starts]))
    if device_view.lags_behind:
        queued.starts = expected_starts(len(starts), device_view.period, steps)
    _add_recorded(queued, device_view, loop)
    add_inferred_calls(queued, device_view, loop)
    if not device_view.lags_behind:
        _add_event_waits(queued, device_view, loop)
    queued.calls.sort(key=lambda call: (call.start, bool(call.awaits), call.end))
    return queued


def _add_recorded(queued: QueuedCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add calls of the loop's thread. Queueing calls of other threads cost the loop nothing."""
    calls = device_view.calls
    starts, ends = calls["start"].astype(np.int64), calls["end"].astype(np.int64)
    own = calls["thread"] == device_view.thread & THREAD_ID_MASK
    numbers = [
        number
        for number in np.flatnonzero(device_view.call_of >= 0).tolist()
        if _is_queued_by_call(device_view, number, own)
    ]
    queues = np.isin(np.arange(len(calls)), device_view.call_of[numbers])
    here, launches = (loop.at(starts) >= 0) & (own | queues), device_view.is_launch
    found = {
        place: CudaCall(int(starts[place]), int(ends[place] if own[place] else starts[place]), launches=launches[place])
        for place in np.flatnonzero(here).tolist()
    }
    blocks = mask_blocking_copies(device_view)
    for number in numbers:
        place = int(device_view.call_of[number])
        is_last = own[place] and not blocks[number]  # queueing is the last work of the call
        queued.when[number] = min(ends[place], queued.starts[number]) if is_last else starts[place]
    _order_by_stream(device_view, queued.when, [number for number in numbers if not own[device_view.call_of[number]]])
    for number in numbers:
        place = int(device_view.call_of[number])
        if place not in found:
            continue
        found[place].queues.append(number)
        if not own[place]:
            found[place].start = found[place].end = int(queued.when[number])
    waiting = {place: call for place, call in found.items() if own[place] and not call.launches}
    _find_awaited(device_view, queued.when, waiting, blocks)
    queued.calls += found.values()


def _order_by_stream(device_view: DeviceView, when: Any, numbers: list[int]) -> None:
    """Order the queueing times of other threads as their operations ran on each stream."""
    ours, streams = np.array(numbers, np.int64), device_view.operations["stream"]
    for stream in np.unique(streams[ours]):
        own = ours[streams[ours] == stream]
        own = own[np.argsort(device_view.operations["start"][own], kind="stable")]
        latest = np.maximum.accumulate(when[own])
        when[own] = np.where(latest > when[own], latest + 1, latest)


def _is_queued_by_call(device_view: DeviceView, number: int, own: Any) -> bool:
    """Whether the call of an operation shows when the loop queued it.

    A copy that another thread makes for an event of the loop was queued by that event; its call comes later.
    """
    owner = int(device_view.event_of[number])
    if own[device_view.call_of[number]] or owner < 0 or device_view.events[owner].thread != device_view.thread:
        return True
    return not is_transfer(device_view, number, owner)


def _find_awaited(device_view: DeviceView, when: Any, calls: dict[int, CudaCall], blocks: Any) -> None:
    """Set the operations that each call waits for.

    A blocking copy waits for itself. A wait for streams waits for the last operation queued on them. Other waits wait
    for the last operation that ended during the call.
    """
    ended, last = (
        _ByEndTime(device_view.operations["end"].astype(np.int64)),
        _QueuedByStream(device_view.operations["stream"], when),
    )
    asked = {
        int(sync["correlation"]): sync for sync in device_view.syncs[np.isin(device_view.syncs["what"], _HOST_WAITS)]
    }
    for place, call in calls.items():
        sync = asked.get(int(device_view.calls["correlation"][place]))
        if call.queues:
            call.awaits += [number for number in call.queues if blocks[number]]
        elif sync is not None and sync["what"] == _EVENT_WAIT:
            call.awaits += ended.last(call.start, call.end + CLOCK_SLACK_NS)
        elif sync is not None:
            call.awaits += last.queued(call.start, None if sync["what"] == _DEVICE_WAIT else int(sync["stream"]))


class _QueuedByStream:
    """Operations by stream, in order of queueing."""

    def __init__(self, streams: Any, when: Any) -> None:
        order = np.argsort(when, kind="stable")
        order = order[when[order] >= 0]
        self._own = {int(stream): order[streams[order] == stream] for stream in np.unique(streams)}
        self._when = when

    def queued(self, before: int, stream: int | None) -> list[int]:
        """Return the last operation of a stream, or of every stream, that was queued before a time."""
        found = []
        for own in self._own.values() if stream is None else [self._own.get(stream, [])]:
            at = int(np.searchsorted(self._when[own], before)) - 1 if len(own) else -1
            found += [int(own[at])] if at >= 0 else []
        return found


class _ByEndTime:
    """Operations in order of their end."""

    def __init__(self, ends: Any) -> None:
        self._order = np.argsort(ends, kind="stable")
        self._rising = ends[self._order]

    def last(self, start: int, end: int) -> list[int]:
        """Return the last operation that ended between these times, if any."""
        at = int(np.searchsorted(self._rising, end, "right")) - 1
        return [int(self._order[at])] if at >= 0 and self._rising[at] > start else []


def _add_event_waits(queued: QueuedCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add waits of events without a recorded wait.

    These are read-backs, uploads that end with their copy, and compiled calls that wait for the preparation of an
    upload or for their batch.
    """
    ended, copied = _ByEndTime(queued.ends[: len(queued.starts)]), _copies_by_owner(device_view)
    held = np.flatnonzero(mask_batch_fetches(device_view))
    stood = np.array(sorted(call.start for call in queued.calls if call.awaits), np.int64)
    asking = np.sort(device_view.syncs["start"][np.isin(device_view.syncs["what"], _HOST_WAITS)].astype(np.int64))
    for piece in loop.pieces:
        if piece.place < 0 or np.diff(np.searchsorted(stood, (piece.start, piece.end))).any():
            continue
        limit = piece.end + CLOCK_SLACK_NS
        awaits = [number for number in copied.get(piece.place, ()) if queued.ends[number] <= limit]
        if piece.kind in WAITS and not awaits:
            awaits = ended.last(piece.start, limit)
        elif piece.kind == EventKind.RUN:
            ready = (number + len(queued.starts) for number in queued.staged)
            coming = (number for number in held.tolist() if piece.start <= queued.when[number] < piece.end)
            awaits = [number for number in (*ready, *coming) if piece.start < queued.ends[number] <= limit]
        if awaits:
            since = max([piece.start, *(int(queued.when[n]) for n in awaits if n < len(queued.when))])
            until = min(piece.end, max(int(queued.ends[number]) for number in awaits))
            sleeps = not np.diff(np.searchsorted(asking, (piece.start, piece.end))).any()
            queued.calls.append(CudaCall(since, max(since, until), awaits=awaits, sleeps=sleeps))


def _copies_by_owner(device_view: DeviceView) -> dict[int, list[int]]:
    """Return by event the copies with at least half of its bytes."""
    found: dict[int, list[int]] = {}
    for number in np.flatnonzero(~device_view.is_kernel & (device_view.event_of >= 0)).tolist():
        place = int(device_view.event_of[number])
        if (
            is_transfer(device_view, number, place)
            and device_view.operations["nbytes"][number] >= device_view.events[place].nbytes / 2
        ):
            found.setdefault(place, []).append(number)
    return found
