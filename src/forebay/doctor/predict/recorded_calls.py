"""The CUDA calls of the loop, with the operations that they queue and wait for.

A recorded CUDA call shows its operations and its waits. If another thread makes a copy for an event of the loop, that
event counts as the call that queued the copy. For operations without a recorded call, `inferred_calls` adds a call. If
an event reads a value and CUPTI recorded no wait in it, the doctor assumes that the event waits for the last operation
that ended during the event.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import CLOCK_SLACK_NS, NO_MATCH, THREAD_ID_MASK
from forebay.doctor.analyse.blocking_copies import mask_batch_fetches, mask_blocking_copies
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.calls import CudaCall, LoopCalls, LoopIntervals, is_transfer
from forebay.doctor.predict.host_time import WAIT_KINDS, HostInterval
from forebay.doctor.predict.inferred_calls import add_inferred_calls, expected_starts

__all__ = ["find_calls"]

# Values of CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_*
_EVENT_WAIT, _STREAM_WAIT, _DEVICE_WAIT = 1, 3, 4
_HOST_WAITS = (_EVENT_WAIT, _STREAM_WAIT, _DEVICE_WAIT)


def find_calls(device_view: DeviceView, steps: Sequence[Sequence[HostInterval]]) -> LoopCalls:
    """Return the recorded and the inferred CUDA calls of the loop in these steps."""
    loop = LoopIntervals([interval for intervals in steps for interval in intervals])
    starts, ends = device_view.operations["start"].astype(np.int64), device_view.operations["end"].astype(np.int64)
    queue_times = np.full(len(starts), NO_MATCH, np.int64)
    # The second half of the end times belongs to preparations: the preparation of a copy ends when the copy starts.
    loop_calls = LoopCalls([], queue_times, starts, np.concatenate([ends, starts]))
    if device_view.lags_behind:
        loop_calls.start_times = expected_starts(len(starts), device_view.period, steps)
    _add_recorded_calls(loop_calls, device_view, loop)
    add_inferred_calls(loop_calls, device_view, loop)
    if not device_view.lags_behind:
        _add_event_waits(loop_calls, device_view, loop)
    loop_calls.calls.sort(key=lambda call: (call.start, bool(call.awaited_operations), call.end))
    return loop_calls


def _add_recorded_calls(loop_calls: LoopCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add the recorded calls of the loop.

    A call of another thread that queues operations gets no duration, because the loop does not wait for it.
    """
    calls = device_view.calls
    starts, ends = calls["start"].astype(np.int64), calls["end"].astype(np.int64)
    is_own = calls["thread"] == device_view.thread & THREAD_ID_MASK
    operation_indices = [
        index
        for index in np.flatnonzero(device_view.call_of >= 0).tolist()
        if _is_queued_by_call(device_view, index, is_own)
    ]
    has_operations = np.isin(np.arange(len(calls)), device_view.call_of[operation_indices])
    is_in_loop, launches = (loop.indices_at(starts) >= 0) & (is_own | has_operations), device_view.is_launch
    cuda_calls = {
        index: CudaCall(
            int(starts[index]), int(ends[index] if is_own[index] else starts[index]), launches=launches[index]
        )
        for index in np.flatnonzero(is_in_loop).tolist()
    }
    is_blocking = mask_blocking_copies(device_view)
    for index in operation_indices:
        call_index = int(device_view.call_of[index])
        # A call of the loop's thread queues its operation at its end, unless it waits for a copy. A call of another
        # thread queues its operation at its start.
        queues_last = is_own[call_index] and not is_blocking[index]
        latest = min(ends[call_index], loop_calls.start_times[index])
        loop_calls.queue_times[index] = latest if queues_last else starts[call_index]
    of_other_threads = [index for index in operation_indices if not is_own[device_view.call_of[index]]]
    _order_by_stream(device_view, loop_calls.queue_times, of_other_threads)
    for index in operation_indices:
        call_index = int(device_view.call_of[index])
        if call_index not in cuda_calls:
            continue
        call = cuda_calls[call_index]
        call.queued_operations.append(index)
        if not is_own[call_index]:
            call.start = call.end = int(loop_calls.queue_times[index])
    waiting = {index: call for index, call in cuda_calls.items() if is_own[index] and not call.launches}
    _set_awaited_operations(device_view, loop_calls.queue_times, waiting, is_blocking)
    loop_calls.calls += cuda_calls.values()


def _order_by_stream(device_view: DeviceView, queue_times: Any, operation_indices: list[int]) -> None:
    """Delay `queue_times` in place so that they follow the order of execution on each stream."""
    indices, streams = np.array(operation_indices, np.int64), device_view.operations["stream"]
    for stream in np.unique(streams[indices]):
        selected = indices[streams[indices] == stream]
        selected = selected[np.argsort(device_view.operations["start"][selected], kind="stable")]
        latest = np.maximum.accumulate(queue_times[selected])
        queue_times[selected] = np.where(latest > queue_times[selected], latest + 1, latest)


def _is_queued_by_call(device_view: DeviceView, index: int, is_own: Any) -> bool:
    """Whether the recorded call of an operation shows when the loop queued the operation.

    It does not if another thread makes a copy for an event of the loop: the loop queues the copy in the event, and the
    call of the other thread is later.
    """
    owner = int(device_view.event_of[index])
    if is_own[device_view.call_of[index]] or owner < 0 or device_view.events[owner].thread != device_view.thread:
        return True
    return not is_transfer(device_view, index, owner)


def _set_awaited_operations(
    device_view: DeviceView, queue_times: Any, calls: dict[int, CudaCall], is_blocking: Any
) -> None:
    """Set the operations that each call waits for.

    A call that queues blocking copies waits for these copies. A call that waits for a stream waits for the last
    operation that was queued on it before the call. A call that waits for the device waits for such an operation of
    each stream. A call that waits for a CUDA event waits for the last operation that ended during the call.
    """
    by_end_time = _OperationsByEndTime(device_view.operations["end"].astype(np.int64))
    by_stream = _OperationsByStream(device_view.operations["stream"], queue_times)
    syncs = {
        int(sync["correlation"]): sync for sync in device_view.syncs[np.isin(device_view.syncs["what"], _HOST_WAITS)]
    }
    for call_index, call in calls.items():
        sync = syncs.get(int(device_view.calls["correlation"][call_index]))
        if call.queued_operations:
            call.awaited_operations += [index for index in call.queued_operations if is_blocking[index]]
        elif sync is not None and sync["what"] == _EVENT_WAIT:
            call.awaited_operations += by_end_time.last_between(call.start, call.end + CLOCK_SLACK_NS)
        elif sync is not None:
            stream = None if sync["what"] == _DEVICE_WAIT else int(sync["stream"])
            call.awaited_operations += by_stream.last_queued(call.start, stream)


class _OperationsByStream:
    """Operations of each stream, in order of queueing."""

    def __init__(self, streams: Any, queue_times: Any) -> None:
        order = np.argsort(queue_times, kind="stable")
        order = order[queue_times[order] >= 0]
        self._indices = {int(stream): order[streams[order] == stream] for stream in np.unique(streams)}
        self._queue_times = queue_times

    def last_queued(self, before: int, stream: int | None) -> list[int]:
        """Return a list of the last operation that each selected stream got before a time.

        `stream` selects one stream; None selects all.
        """
        last = []
        for indices in self._indices.values() if stream is None else [self._indices.get(stream, [])]:
            position = int(np.searchsorted(self._queue_times[indices], before)) - 1 if len(indices) else -1
            last += [int(indices[position])] if position >= 0 else []
        return last


class _OperationsByEndTime:
    """Operations in order of their end."""

    def __init__(self, end_times: Any) -> None:
        self._order = np.argsort(end_times, kind="stable")
        self._sorted_ends = end_times[self._order]

    def last_between(self, start: int, end: int) -> list[int]:
        """Return the last operation that ended between these times, or an empty list."""
        position = int(np.searchsorted(self._sorted_ends, end, "right")) - 1
        return [int(self._order[position])] if position >= 0 and self._sorted_ends[position] > start else []


def _add_event_waits(loop_calls: LoopCalls, device_view: DeviceView, loop: LoopIntervals) -> None:
    """Add the waits of events without a recorded wait.

    These events are:

    - read-backs and explicit waits
    - uploads and moves that end after their copy
    - compiled calls that wait for their batch, or until the host has prepared an upload
    """
    by_end_time = _OperationsByEndTime(loop_calls.end_times[: len(loop_calls.start_times)])
    copies = _copies_by_event(device_view)
    batch_fetches = np.flatnonzero(mask_batch_fetches(device_view))
    wait_starts = np.array(sorted(call.start for call in loop_calls.calls if call.awaited_operations), np.int64)
    sync_starts = np.sort(device_view.syncs["start"][np.isin(device_view.syncs["what"], _HOST_WAITS)].astype(np.int64))
    for interval in loop.intervals:
        if interval.event_index < 0 or _has_any_between(wait_starts, interval):
            continue
        limit = interval.end + CLOCK_SLACK_NS
        awaited = [index for index in copies.get(interval.event_index, ()) if loop_calls.end_times[index] <= limit]
        if interval.kind in WAIT_KINDS and not awaited:
            awaited = by_end_time.last_between(interval.start, limit)
        elif interval.kind == EventKind.RUN:
            preparations = (index + len(loop_calls.start_times) for index in loop_calls.preparation_ns)
            fetches = (
                index
                for index in batch_fetches.tolist()
                if interval.start <= loop_calls.queue_times[index] < interval.end
            )
            awaited = [
                index for index in (*preparations, *fetches) if interval.start < loop_calls.end_times[index] <= limit
            ]
        if awaited:
            count = len(loop_calls.queue_times)
            queue_times = (int(loop_calls.queue_times[index]) for index in awaited if index < count)
            start = max([interval.start, *queue_times])
            end = min(interval.end, max(int(loop_calls.end_times[index]) for index in awaited))
            sleeps = not _has_any_between(sync_starts, interval)
            loop_calls.calls.append(CudaCall(start, max(start, end), awaited_operations=awaited, sleeps=sleeps))


def _has_any_between(sorted_times: Any, interval: HostInterval) -> bool:
    """Whether any of the times is inside the interval."""
    return bool(np.diff(np.searchsorted(sorted_times, (interval.start, interval.end))).any())


def _copies_by_event(device_view: DeviceView) -> dict[int, list[int]]:
    """Return for each event its copies that transfer at least half of its bytes."""
    copies: dict[int, list[int]] = {}
    for index in np.flatnonzero(~device_view.is_kernel & (device_view.event_of >= 0)).tolist():
        event_index = int(device_view.event_of[index])
        if (
            is_transfer(device_view, index, event_index)
            and device_view.operations["nbytes"][index] >= device_view.events[event_index].nbytes / 2
        ):
            copies.setdefault(event_index, []).append(index)
    return copies
