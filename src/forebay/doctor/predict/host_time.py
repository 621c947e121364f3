"""The time of the loop's thread as consecutive intervals: inside an event, or other work."""

from collections.abc import Iterable
from typing import NamedTuple

from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["WAITS", "WORK", "HostInterval", "host_intervals"]

WORK = "work"
WAITS = frozenset({EventKind.DOWNLOAD, EventKind.SYNC})
_CALLS = WAITS | {
    EventKind.UPLOAD,
    EventKind.MOVE,
    EventKind.INPUT,
    EventKind.COMPILE,
    EventKind.BUILD,
    EventKind.RUN,
    EventKind.TRANSFORM,
}


class HostInterval(NamedTuple):
    """An interval of one thread, in nanoseconds."""

    start: int
    end: int
    kind: str = WORK  # or the kind of an event
    line: int = -1
    place: int = -1  # index of the event; -1 for work

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


def host_intervals(events: Iterable[LedgerEvent], thread: int, start: int, end: int) -> list[HostInterval]:
    """Split the time from start to end into intervals; the innermost event counts."""
    own = [
        (event.start, -event.end, place, event)
        for place, event in enumerate(events)
        if event.thread == thread and event.kind in _CALLS and event.end > start and event.start < end
    ]
    pieces: list[HostInterval] = []
    open_: list[HostInterval] = [HostInterval(start, end)]
    now = start
    for began, _, place, event in sorted(own):
        now = _close_intervals(pieces, open_, now, min(max(began, start), end))
        open_.append(HostInterval(now, min(event.end, open_[-1].end), event.kind, event.line, place))
    _close_intervals(pieces, open_, now, end)
    return pieces


def _close_intervals(pieces: list[HostInterval], open_: list[HostInterval], now: int, until: int) -> int:
    """Append the intervals up to `until`, and drop events that have ended."""
    while open_:
        ends = min(open_[-1].end, until)
        if ends > now:
            pieces.append(open_[-1]._replace(start=now, end=ends))
            now = ends
        if open_[-1].end > until or len(open_) == 1:
            break
        open_.pop()
    return max(now, until)
