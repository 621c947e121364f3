"""Which event of the API ledger each operation of the device belongs to, and so which line of the user's. Pure.

A call of CUDA's that queued an operation has its number, its thread and its time: the event of that thread which holds
it is the owner. Where the framework called from a thread of its own, a copy belongs to the event that said it crosses
as many bytes in that direction, in the order of time; what is left belongs to whatever the loop was busy with.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import inner
from forebay.doctor.model.device_records import CopyKind, RecordKind
from forebay.doctor.model.events import Event, Kind

__all__ = ["NOBODY", "THREAD_BITS", "calls_of", "owners_of"]

NOBODY = -1
THREAD_BITS = 0xFFFFFFFF  # CUPTI keeps so much of a thread's number
SLACK = 3_000  # nanoseconds that the two ledgers' clocks may be apart
TOGETHER = 5_000_000  # nanoseconds of operations that are counted together
LATE = 50_000_000  # nanoseconds after a call within which its copy begins

_DIRECTIONS = {
    CopyKind.HOST_TO_DEVICE: (Kind.UPLOAD, Kind.MOVE, Kind.INPUT),
    CopyKind.DEVICE_TO_HOST: (Kind.DOWNLOAD, Kind.MOVE),
}


def calls_of(operations: Any, calls: Any) -> Any:
    """For each operation, the place of the call that queued it among `calls`; -1 where that was not recorded."""
    if not len(calls):
        return np.full(len(operations), NOBODY)
    order = np.argsort(calls["correlation"], kind="stable")
    numbers = calls["correlation"][order]
    at = np.searchsorted(numbers, operations["correlation"]).clip(max=len(numbers) - 1)
    return np.where(numbers[at] == operations["correlation"], order[at], NOBODY)


def owners_of(operations: Any, calls: Any, call_of: Any, events: Sequence[Event], thread: int) -> Any:
    """For each operation, the place of its event; NOBODY where there is none."""
    owners = np.full(len(operations), NOBODY)
    known = call_of >= 0
    owners[known] = _holding(events, calls["thread"][call_of[known]], calls["start"][call_of[known]])
    copies = operations["kind"] == RecordKind.MEMCPY
    for direction, kinds in _DIRECTIONS.items():
        wanted = np.flatnonzero(copies & (operations["what"] == direction) & ~_says(owners, events, kinds))
        owners[wanted] = _by_size(operations[wanted], events, kinds, owners[wanted])
    lost = np.flatnonzero(owners == NOBODY)
    began = np.where(known[lost], calls["start"][call_of[lost]] if len(calls) else 0, operations["start"][lost])
    owners[lost] = _holding(events, np.full(len(lost), thread & THREAD_BITS), began)
    still = owners[lost] == NOBODY
    owners[lost[still]] = _counted_near(events, thread, began[still].astype(np.int64))
    return owners


def _counted_near(events: Sequence[Event], thread: int, times: Any) -> Any:
    """Operations are counted together, some milliseconds of a line's, and only some of many are looked at: what was
    queued between two such events of the loop's is the nearer one's."""
    places = np.array([p for p, event in enumerate(events) if event.kind == Kind.OPS and event.thread == thread], int)
    if not len(places):
        return np.full(len(times), NOBODY)
    starts, ends = _times(events, places)
    order = np.argsort(starts, kind="stable")
    after = np.searchsorted(starts[order], times)
    before, after = order[(after - 1).clip(min=0)], order[after.clip(max=len(order) - 1)]
    passed, coming = np.abs(times - ends[before]), np.abs(starts[after] - times)
    near = np.minimum(passed, coming) <= TOGETHER
    return np.where(near, places[np.where(passed <= coming, before, after)], NOBODY)


def _says(owners: Any, events: Sequence[Event], kinds: tuple[Kind, ...]) -> Any:
    """Whether an operation's owner is of one of these kinds."""
    right = np.array([event.kind in kinds for event in events] + [False])
    return right[owners]


def _holding(events: Sequence[Event], threads: Any, times: Any) -> Any:
    """The innermost event of each thread that holds each moment."""
    found = np.full(len(times), NOBODY)
    own = np.array([event.thread & THREAD_BITS for event in events])
    for thread in np.unique(threads):
        places = np.flatnonzero(own == thread)
        asked = np.flatnonzero(threads == thread)
        if not len(places):
            continue
        starts, ends = _times(events, places)
        order = np.lexsort((-ends, starts))
        held = inner(starts[order], ends[order] + SLACK, times[asked].astype(np.int64))
        found[asked] = np.where(held >= 0, places[order][held], NOBODY)
    return found


def _times(events: Sequence[Event], places: Any) -> tuple[Any, Any]:
    found = [events[place] for place in places.tolist()]
    return np.array([event.start for event in found], np.int64), np.array([event.end for event in found], np.int64)


def _by_size(copies: Any, events: Sequence[Event], kinds: tuple[Kind, ...], otherwise: Any) -> Any:
    """The latest event that crosses as many bytes, of those that had begun; where none did, what was known before."""
    found = otherwise.copy()
    sizes: dict[int, list[int]] = {}
    for place, event in enumerate(events):
        if event.kind in kinds and event.nbytes:
            sizes.setdefault(event.nbytes, []).append(place)
    for nbytes in np.unique(copies["nbytes"]).tolist():
        places = np.array(sizes.get(nbytes, ()), np.int64)
        asked = np.flatnonzero(copies["nbytes"] == nbytes)
        if len(places):
            found[asked] = _paired(copies[asked], places, events, found[asked])
    return found


def _paired(copies: Any, places: Any, events: Sequence[Event], otherwise: Any) -> Any:
    """One by one in order where there are as many of both, else each copy to the latest that had begun."""
    starts, _ = _times(events, places)
    order = np.argsort(starts, kind="stable")
    places, starts = places[order], starts[order]
    began = copies["start"].astype(np.int64) + SLACK
    if len(places) == len(copies) and np.all(starts <= began):
        return places
    at = np.searchsorted(starts, began, "right") - 1
    near = (at >= 0) & (began - starts[at] <= LATE)
    return np.where(near, places[at], otherwise)
