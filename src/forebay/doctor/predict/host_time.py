"""What the loop's thread was busy with, one piece after the other: inside a call that was watched, or at its own work.
Pure."""

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
    """Some time of one thread; nanoseconds."""

    start: int
    end: int
    kind: str = WORK  # or an event's
    line: int = -1
    place: int = -1  # of the event among those given; -1 for work

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


def host_intervals(events: Iterable[LedgerEvent], thread: int, start: int, end: int) -> list[HostInterval]:
    """All of a stretch of time; where one event lies inside another, the inner one has it."""
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
    """Write down what goes on up to a moment; what ends before it is left."""
    while open_:
        ends = min(open_[-1].end, until)
        if ends > now:
            pieces.append(open_[-1]._replace(start=now, end=ends))
            now = ends
        if open_[-1].end > until or len(open_) == 1:
            break
        open_.pop()
    return max(now, until)
