"""The time of the loop's thread as consecutive intervals, inside and outside of events."""

from collections.abc import Iterable
from typing import NamedTuple

from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["WAIT_KINDS", "WORK", "HostInterval", "host_intervals"]

WORK = "work"  # the kind of an interval outside of all events
WAIT_KINDS = frozenset({EventKind.DOWNLOAD, EventKind.SYNC})  # events in which the host waits for the device
_EVENT_KINDS = WAIT_KINDS | {
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
    kind: str = WORK  # WORK, or the kind of the event
    line: int = -1  # index into `Capture.lines`; -1 for work, and for events without user code
    event_index: int = -1  # index into the events; -1 for work

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


def host_intervals(events: Iterable[LedgerEvent], thread: int, start: int, end: int) -> list[HostInterval]:
    """Split the time of a thread from `start` to `end` into intervals.

    If events are nested, an interval belongs to the innermost event.
    """
    selected = [
        (event.start, -event.end, index, event)
        for index, event in enumerate(events)
        if event.thread == thread and event.kind in _EVENT_KINDS and event.end > start and event.start < end
    ]
    closed: list[HostInterval] = []
    stack: list[HostInterval] = [HostInterval(start, end)]  # the open intervals, innermost last
    now = start
    for event_start, _, index, event in sorted(selected):
        now = _close_intervals(closed, stack, now, min(max(event_start, start), end))
        stack.append(HostInterval(now, min(event.end, stack[-1].end), event.kind, event.line, index))
    _close_intervals(closed, stack, now, end)
    return closed


def _close_intervals(closed: list[HostInterval], stack: list[HostInterval], now: int, until: int) -> int:
    """Append the intervals from `now` to `until` to `closed`.

    Remove the events that have ended from `stack`. Return the new current time.
    """
    while stack:
        end = min(stack[-1].end, until)
        if end > now:
            closed.append(stack[-1]._replace(start=now, end=end))
            now = end
        if stack[-1].end > until or len(stack) == 1:
            break
        stack.pop()
    return max(now, until)
