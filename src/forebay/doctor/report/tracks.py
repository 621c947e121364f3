"""Who did what when: a lane for each thread and stream, in rows where nothing overlaps. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.events import Event, Kind

__all__ = ["Lane", "lanes_of"]


@dataclass(frozen=True, slots=True)
class Lane:
    """What one thread or stream did; what happened inside something else stands in a row below it."""

    name: str
    rows: tuple[tuple[Event, ...], ...]


def lanes_of(case: Case, events: Iterable[Event]) -> list[Lane]:
    """The loop first, then other threads and streams as they appear; ends of steps are no events of a lane."""
    loop = case.steps.thread if case.steps else None
    found: dict[tuple[int, str], list[Event]] = {} if loop is None else {(loop, ""): []}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.kind != Kind.STEP:
            found.setdefault((event.thread, _stream(event)), []).append(event)
    names = _names(found, loop)
    return [Lane(names[key], _rows(own)) for key, own in found.items() if own]


def _stream(event: Event) -> str:
    """What the device did is told by its stream; everything else by its thread."""
    detail = event.detail or {}
    return f"{detail.get('device', 'device')} stream {detail['stream']}" if "stream" in detail else ""


def _names(keys: Iterable[tuple[int, str]], loop: int | None) -> dict[tuple[int, str], str]:
    names, threads = {}, 0
    for thread, stream in keys:
        threads += not stream
        names[thread, stream] = stream or ("the loop" if thread == loop else f"thread {threads}")
    return names


def _rows(events: Iterable[Event]) -> tuple[tuple[Event, ...], ...]:
    """Each event in the first row that is free when it starts; they come in the order they start in."""
    rows: list[list[Event]] = []
    for event in events:
        free = next((row for row in rows if row[-1].end <= event.start), None)
        if free is None:
            rows.append([event])
        else:
            free.append(event)
    return tuple(map(tuple, rows))
