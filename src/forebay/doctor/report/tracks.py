"""Tracks of the report's timeline: one per thread and device stream, with rows of events."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["Track", "tracks_of"]


@dataclass(frozen=True, slots=True)
class Track:
    """The events of one thread or stream. Events in one row do not overlap."""

    name: str
    rows: tuple[tuple[LedgerEvent, ...], ...]


def tracks_of(view: CaptureView, events: Iterable[LedgerEvent]) -> list[Track]:
    """Return the track of the loop's thread, then all other tracks.

    They are in the order of their first events. Events that only mark the end of a step are omitted.
    """
    loop_thread = view.steps.thread if view.steps else None
    events_by_track: dict[tuple[int, str], list[LedgerEvent]] = {} if loop_thread is None else {(loop_thread, ""): []}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.kind != EventKind.STEP:
            events_by_track.setdefault((event.thread, _stream_name(event)), []).append(event)
    names = _track_names(events_by_track, loop_thread)
    return [Track(names[key], _arrange_rows(own_events)) for key, own_events in events_by_track.items() if own_events]


def _stream_name(event: LedgerEvent) -> str:
    """Return the name of a device event's stream, or "" for a host event."""
    detail = event.detail or {}
    return f"{detail.get('device', 'device')} stream {detail['stream']}" if "stream" in detail else ""


def _track_names(keys: Iterable[tuple[int, str]], loop_thread: int | None) -> dict[tuple[int, str], str]:
    """Return the name of each track. A key has a thread and a stream name."""
    names, thread_count = {}, 0
    for thread, stream in keys:
        thread_count += not stream
        names[thread, stream] = stream or ("the loop" if thread == loop_thread else f"thread {thread_count}")
    return names


def _arrange_rows(events: Iterable[LedgerEvent]) -> tuple[tuple[LedgerEvent, ...], ...]:
    """Put each event into the first free row. The events are sorted by start."""
    rows: list[list[LedgerEvent]] = []
    busy: list[tuple[int, int]] = []  # heap of (end of the last event of a row, row number)
    free: list[int] = []  # heap of row numbers
    for event in events:
        while busy and busy[0][0] <= event.start:
            heappush(free, heappop(busy)[1])
        number = heappop(free) if free else len(rows)
        if number == len(rows):
            rows.append([])
        rows[number].append(event)
        heappush(busy, (event.end, number))
    return tuple(map(tuple, rows))
