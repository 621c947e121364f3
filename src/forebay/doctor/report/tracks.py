"""Tracks of the timeline: one for each thread and stream, in rows without overlap."""

from collections.abc import Iterable
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["Track", "tracks_of"]


@dataclass(frozen=True, slots=True)
class Track:
    """The events of one thread or stream; nested events are in the rows below."""

    name: str
    rows: tuple[tuple[LedgerEvent, ...], ...]


def tracks_of(view: CaptureView, events: Iterable[LedgerEvent]) -> list[Track]:
    """Return the loop's track first, then other threads and streams in order of appearance.

    Step ends are not drawn as events.
    """
    loop = view.steps.thread if view.steps else None
    found: dict[tuple[int, str], list[LedgerEvent]] = {} if loop is None else {(loop, ""): []}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.kind != EventKind.STEP:
            found.setdefault((event.thread, _stream(event)), []).append(event)
    names = _names(found, loop)
    return [Track(names[key], _rows(own)) for key, own in found.items() if own]


def _stream(event: LedgerEvent) -> str:
    """Return the stream of a device event; empty for an event of a host thread."""
    detail = event.detail or {}
    return f"{detail.get('device', 'device')} stream {detail['stream']}" if "stream" in detail else ""


def _names(keys: Iterable[tuple[int, str]], loop: int | None) -> dict[tuple[int, str], str]:
    names, threads = {}, 0
    for thread, stream in keys:
        threads += not stream
        names[thread, stream] = stream or ("the loop" if thread == loop else f"thread {threads}")
    return names


def _rows(events: Iterable[LedgerEvent]) -> tuple[tuple[LedgerEvent, ...], ...]:
    """Put each event in the first free row. The events are sorted by start."""
    rows: list[list[LedgerEvent]] = []
    for event in events:
        free = next((row for row in rows if row[-1].end <= event.start), None)
        if free is None:
            rows.append([event])
        else:
            free.append(event)
    return tuple(map(tuple, rows))
