"""Attribution of device operations to ledger events, and thus to source lines.

CUPTI gives a CUDA call and its operation the same correlation number. `match_events` assigns each operation to the
first of these events that exists:

1. for a copy: an event with the same size, of a kind that copies in this direction. It is used only if event 2 is of a
   kind that does not copy in this direction, or does not exist
2. the innermost event on the thread of the call, at the start of the call
3. the innermost event on the loop's thread at the start of the call, because a framework's own thread may make the call
4. the nearest OPS event

If CUPTI recorded no call, the start of the operation replaces the start of the call.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import find_innermost
from forebay.doctor.model.device_records import CopyKind, RecordKind
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["CLOCK_SLACK_NS", "NO_MATCH", "THREAD_ID_MASK", "innermost_events", "match_calls", "match_events"]

NO_MATCH = -1  # replaces the index of a call or event that does not exist
THREAD_ID_MASK = 0xFFFFFFFF  # CUPTI records only these bits of a thread id
CLOCK_SLACK_NS = 3_000  # nanoseconds; tolerated error of the conversion from CUPTI's clock to the clock of the ledger
NEAREST_OPS_NS = 5_000_000  # nanoseconds; largest time between the call of an operation and its nearest OPS event
MAX_COPY_DELAY_NS = 50_000_000  # nanoseconds; largest time from the start of an event to that of its copy
MAX_SCALAR_NBYTES = 64  # of a copy that may belong to an eager operation

# Direction of a copy -> kinds of events that make such copies.
_DIRECTIONS = {
    CopyKind.HOST_TO_DEVICE: (EventKind.UPLOAD, EventKind.MOVE, EventKind.INPUT),
    CopyKind.DEVICE_TO_HOST: (EventKind.DOWNLOAD, EventKind.MOVE),
}


def match_calls(operations: Any, calls: Any) -> Any:
    """Return for each operation the index of the call that queued it, or NO_MATCH."""
    if not len(calls):
        return np.full(len(operations), NO_MATCH)
    order = np.argsort(calls["correlation"], kind="stable")
    sorted_numbers = calls["correlation"][order]
    positions = np.searchsorted(sorted_numbers, operations["correlation"]).clip(max=len(sorted_numbers) - 1)
    return np.where(sorted_numbers[positions] == operations["correlation"], order[positions], NO_MATCH)


def match_events(operations: Any, calls: Any, call_of: Any, events: Sequence[LedgerEvent], thread: int) -> Any:
    """Return for each operation the index of its event, or NO_MATCH.

    `call_of` is the result of `match_calls`. `thread` is the loop's thread.
    """
    event_of = np.full(len(operations), NO_MATCH)
    has_call = call_of >= 0
    event_of[has_call] = innermost_events(events, calls["thread"][call_of[has_call]], calls["start"][call_of[has_call]])
    is_copy = operations["kind"] == RecordKind.MEMCPY
    for direction, kinds in _DIRECTIONS.items():
        indices = np.flatnonzero(is_copy & (operations["what"] == direction) & ~_has_kind(event_of, events, kinds))
        event_of[indices] = _match_by_size(operations[indices], events, kinds, event_of[indices])
    unmatched = np.flatnonzero(event_of == NO_MATCH)
    queued_at = np.where(
        has_call[unmatched], calls["start"][call_of[unmatched]] if len(calls) else 0, operations["start"][unmatched]
    )
    event_of[unmatched] = innermost_events(events, np.full(len(unmatched), thread & THREAD_ID_MASK), queued_at)
    still_unmatched = event_of[unmatched] == NO_MATCH
    event_of[unmatched[still_unmatched]] = _nearest_ops_event(
        events, thread, queued_at[still_unmatched].astype(np.int64)
    )
    return event_of


def _nearest_ops_event(events: Sequence[LedgerEvent], thread: int, times: Any) -> Any:
    """Return the index of the OPS event on `thread` nearest to each time, or NO_MATCH.

    Return NO_MATCH if no OPS event is within NEAREST_OPS_NS. An OPS event covers some milliseconds of operations. The
    hooks do not record all operations, so the loop may queue an operation between two OPS events.
    """
    indices = np.array(
        [index for index, event in enumerate(events) if event.kind == EventKind.OPS and event.thread == thread], int
    )
    if not len(indices):
        return np.full(len(times), NO_MATCH)
    starts, ends = _start_and_end_times(events, indices)
    order = np.argsort(starts, kind="stable")
    after = np.searchsorted(starts[order], times)
    before, after = order[(after - 1).clip(min=0)], order[after.clip(max=len(order) - 1)]
    since_end, until_start = np.abs(times - ends[before]), np.abs(starts[after] - times)
    is_near = np.minimum(since_end, until_start) <= NEAREST_OPS_NS
    return np.where(is_near, indices[np.where(since_end <= until_start, before, after)], NO_MATCH)


def _has_kind(event_of: Any, events: Sequence[LedgerEvent], kinds: tuple[EventKind, ...]) -> Any:
    """Return for each operation whether its event has one of these kinds."""
    has_kind = np.array([event.kind in kinds for event in events] + [False])
    return has_kind[event_of]


def innermost_events(events: Sequence[LedgerEvent], threads: Any, times: Any) -> Any:
    """Return for each time the index of the innermost event of a thread, or NO_MATCH.

    `threads` has one thread id per time, as CUPTI records it.
    """
    matches = np.full(len(times), NO_MATCH)
    event_threads = np.array([event.thread & THREAD_ID_MASK for event in events])
    for thread in np.unique(threads):
        event_indices = np.flatnonzero(event_threads == thread)
        time_indices = np.flatnonzero(threads == thread)
        if not len(event_indices):
            continue
        starts, ends = _start_and_end_times(events, event_indices)
        order = np.lexsort((-ends, starts))
        positions = find_innermost(starts[order], ends[order] + CLOCK_SLACK_NS, times[time_indices].astype(np.int64))
        matches[time_indices] = np.where(positions >= 0, event_indices[order][positions], NO_MATCH)
    return matches


def _start_and_end_times(events: Sequence[LedgerEvent], indices: Any) -> tuple[Any, Any]:
    """Return the start and end times of the events at these indices, in nanoseconds."""
    selected = [events[index] for index in indices.tolist()]
    starts, ends = [event.start for event in selected], [event.end for event in selected]
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _match_by_size(copies: Any, events: Sequence[LedgerEvent], kinds: tuple[EventKind, ...], fallback: Any) -> Any:
    """Return for each copy the index of an event of these kinds with equal size.

    `fallback` has the indices for copies without such an event.
    """
    matches = fallback.copy()
    events_by_size: dict[int, list[int]] = {}
    for index, event in enumerate(events):
        if event.kind in kinds and event.nbytes:
            events_by_size.setdefault(event.nbytes, []).append(index)
    for nbytes in np.unique(copies["nbytes"]).tolist():
        event_indices = np.array(events_by_size.get(nbytes, ()), np.int64)
        copy_indices = np.flatnonzero(copies["nbytes"] == nbytes)
        if len(event_indices):
            matches[copy_indices] = _pair_copies(copies[copy_indices], event_indices, events, matches[copy_indices])
    return matches


def _pair_copies(copies: Any, event_indices: Any, events: Sequence[LedgerEvent], fallback: Any) -> Any:
    """Return for each copy the index of its event among events of the same size.

    If there are as many events as copies and each event starts before its copy, pair them in order of time. Otherwise
    use the latest event before each copy. If this event started more than MAX_COPY_DELAY_NS before the copy, use the
    index in `fallback`. An event has at most one copy of up to MAX_SCALAR_NBYTES: eager operations copy such scalars,
    too, and no event records these copies.
    """
    starts, _ = _start_and_end_times(events, event_indices)
    order = np.argsort(starts, kind="stable")
    event_indices, starts = event_indices[order], starts[order]
    latest_starts = copies["start"].astype(np.int64) + CLOCK_SLACK_NS
    if len(event_indices) == len(copies) and np.all(starts <= latest_starts):
        return event_indices
    positions = np.searchsorted(starts, latest_starts, "right") - 1
    is_near = (positions >= 0) & (latest_starts - starts[positions] <= MAX_COPY_DELAY_NS)
    if len(copies) and copies["nbytes"][0] <= MAX_SCALAR_NBYTES:
        in_order = np.argsort(latest_starts, kind="stable")
        is_first = np.zeros(len(copies), bool)
        is_first[in_order[np.unique(positions[in_order], return_index=True)[1]]] = True
        is_near &= is_first
    return np.where(is_near, event_indices[positions], fallback)
