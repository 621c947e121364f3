"""Attribution of device operations to ledger events, and thus to source lines.

A CUDA call and its operation share a correlation number. The innermost event on the thread of the call owns the
operation. If the framework called from its own thread, a copy belongs to an event with the same direction and number of
bytes, in order of time. Any other operation belongs to the event that the loop was in.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import innermost
from forebay.doctor.model.device_records import CopyKind, RecordKind
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["NO_MATCH", "THREAD_ID_MASK", "match_calls", "match_events"]

NO_MATCH = -1  # index of an operation without a call or event
THREAD_ID_MASK = 0xFFFFFFFF  # CUPTI records only these bits of a thread id
CLOCK_SLACK_NS = 3_000  # largest difference between the clocks of host and device
NEAREST_OPS_NS = 5_000_000  # largest distance to an event that counts operations
LONGEST_COPY_DELAY_NS = 50_000_000  # from a call to the start of its copy

_DIRECTIONS = {
    CopyKind.HOST_TO_DEVICE: (EventKind.UPLOAD, EventKind.MOVE, EventKind.INPUT),
    CopyKind.DEVICE_TO_HOST: (EventKind.DOWNLOAD, EventKind.MOVE),
}


def match_calls(operations: Any, calls: Any) -> Any:
    """Return for each operation the index of the call that queued it, or NO_MATCH."""
    if not len(calls):
        return np.full(len(operations), NO_MATCH)
    order = np.argsort(calls["correlation"], kind="stable")
    numbers = calls["correlation"][order]
    at = np.searchsorted(numbers, operations["correlation"]).clip(max=len(numbers) - 1)
    return np.where(numbers[at] == operations["correlation"], order[at], NO_MATCH)


def match_events(operations: Any, calls: Any, call_of: Any, events: Sequence[LedgerEvent], thread: int) -> Any:
    """Return for each operation the index of its event, or NO_MATCH."""
    event_of = np.full(len(operations), NO_MATCH)
    known = call_of >= 0
    event_of[known] = _innermost_event(events, calls["thread"][call_of[known]], calls["start"][call_of[known]])
    copies = operations["kind"] == RecordKind.MEMCPY
    for direction, kinds in _DIRECTIONS.items():
        wanted = np.flatnonzero(copies & (operations["what"] == direction) & ~_has_kind(event_of, events, kinds))
        event_of[wanted] = _match_by_size(operations[wanted], events, kinds, event_of[wanted])
    lost = np.flatnonzero(event_of == NO_MATCH)
    began = np.where(known[lost], calls["start"][call_of[lost]] if len(calls) else 0, operations["start"][lost])
    event_of[lost] = _innermost_event(events, np.full(len(lost), thread & THREAD_ID_MASK), began)
    still = event_of[lost] == NO_MATCH
    event_of[lost[still]] = _nearest_ops_event(events, thread, began[still].astype(np.int64))
    return event_of


def _nearest_ops_event(events: Sequence[LedgerEvent], thread: int, times: Any) -> Any:
    """Return the nearest OPS event of the loop for each time.

    One OPS event counts the operations of some milliseconds, and hooks sample only some of them. So operations may be
    queued between two such events.
    """
    places = np.array(
        [p for p, event in enumerate(events) if event.kind == EventKind.OPS and event.thread == thread], int
    )
    if not len(places):
        return np.full(len(times), NO_MATCH)
    starts, ends = _times(events, places)
    order = np.argsort(starts, kind="stable")
    after = np.searchsorted(starts[order], times)
    before, after = order[(after - 1).clip(min=0)], order[after.clip(max=len(order) - 1)]
    since_end, until_start = np.abs(times - ends[before]), np.abs(starts[after] - times)
    near = np.minimum(since_end, until_start) <= NEAREST_OPS_NS
    return np.where(near, places[np.where(since_end <= until_start, before, after)], NO_MATCH)


def _has_kind(event_of: Any, events: Sequence[LedgerEvent], kinds: tuple[EventKind, ...]) -> Any:
    """Return whether each operation belongs to an event of these kinds."""
    has_kind = np.array([event.kind in kinds for event in events] + [False])
    return has_kind[event_of]


def _innermost_event(events: Sequence[LedgerEvent], threads: Any, times: Any) -> Any:
    """Return for each time the innermost event on its thread."""
    found = np.full(len(times), NO_MATCH)
    own = np.array([event.thread & THREAD_ID_MASK for event in events])
    for thread in np.unique(threads):
        places = np.flatnonzero(own == thread)
        selected = np.flatnonzero(threads == thread)
        if not len(places):
            continue
        starts, ends = _times(events, places)
        order = np.lexsort((-ends, starts))
        held = innermost(starts[order], ends[order] + CLOCK_SLACK_NS, times[selected].astype(np.int64))
        found[selected] = np.where(held >= 0, places[order][held], NO_MATCH)
    return found


def _times(events: Sequence[LedgerEvent], places: Any) -> tuple[Any, Any]:
    found = [events[place] for place in places.tolist()]
    return np.array([event.start for event in found], np.int64), np.array([event.end for event in found], np.int64)


def _match_by_size(copies: Any, events: Sequence[LedgerEvent], kinds: tuple[EventKind, ...], otherwise: Any) -> Any:
    """Match copies to events with the same number of bytes; keep `otherwise` if there is none."""
    found = otherwise.copy()
    sizes: dict[int, list[int]] = {}
    for place, event in enumerate(events):
        if event.kind in kinds and event.nbytes:
            sizes.setdefault(event.nbytes, []).append(place)
    for nbytes in np.unique(copies["nbytes"]).tolist():
        places = np.array(sizes.get(nbytes, ()), np.int64)
        selected = np.flatnonzero(copies["nbytes"] == nbytes)
        if len(places):
            found[selected] = _pair_copies(copies[selected], places, events, found[selected])
    return found


def _pair_copies(copies: Any, places: Any, events: Sequence[LedgerEvent], otherwise: Any) -> Any:
    """Pair copies and events in order if there are as many; else match the latest earlier event."""
    starts, _ = _times(events, places)
    order = np.argsort(starts, kind="stable")
    places, starts = places[order], starts[order]
    began = copies["start"].astype(np.int64) + CLOCK_SLACK_NS
    if len(places) == len(copies) and np.all(starts <= began):
        return places
    at = np.searchsorted(starts, began, "right") - 1
    near = (at >= 0) & (began - starts[at] <= LONGEST_COPY_DELAY_NS)
    return np.where(near, places[at], otherwise)
