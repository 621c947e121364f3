"""Attribution of the device's idle time to the events of the loop at that time.

A gap is a time in which the device is idle. Each moment of a gap gets the cause of the loop's event at this moment. If
a gap starts while the loop waits for the device, the wait also causes the rest of the gap: without the wait, the loop
would have queued more work. Only events with another cause in the rest of the gap keep their own cause. Moments without
any of these causes count as launching, as Python, or as idle, which means that an operation was queued but had not
started.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import PARTS
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = [
    "CAUSES",
    "IDLE",
    "LAUNCHING",
    "PYTHON",
    "CALL_LATENCY_NS",
    "IdleTime",
    "QueueActivity",
    "attribute_idle",
    "launching_intervals",
]

# Cause of idle time -> kinds of events. If events of several causes overlap, the first of these causes counts. The
# device may compute during a compiled call, so this part of a step is no cause.
CAUSES = {part: kinds for part, kinds in PARTS.items() if part != "compiled calls"}
LAUNCHING = "launching"  # the host launches operations, or prepares the next launch
PYTHON = "Python"  # no other cause applies
IDLE = "idle"  # an operation was queued but had not started
READ_BACK_CAUSE, UPLOAD_CAUSE = "device to host", "host to device"  # keys of CAUSES
MAX_LAUNCH_NS = 200_000  # nanoseconds; less time between two launches counts as launching, more time as Python
CALL_LATENCY_NS = 10_000  # nanoseconds within which an idle device starts an operation after the end of its call
# Kinds of events that launch operations.
LAUNCHES = frozenset({EventKind.RUN, EventKind.TRANSFORM, EventKind.OPS})


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the device for one cause and line, as means per step."""

    cause: str  # a key of CAUSES, LAUNCHING, PYTHON or IDLE
    line: int  # index into the capture's lines; -1 if unknown
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueActivity:
    """When the host prepared and queued operations."""

    launching: Intervals  # when the host launched operations with at most MAX_LAUNCH_NS between two launches
    queued: Intervals  # when an operation was queued and had not started
    upload_preparations: Mapping[int, Intervals]  # line -> when the host prepared its data for an upload


def attribute_idle(
    gaps: Intervals, loop_events: Sequence[LedgerEvent], steps: int, activity: QueueActivity
) -> tuple[IdleTime, ...]:
    """Attribute every moment of the gaps to one cause; return the longest first.

    `gaps` are the times in which the device is idle. `loop_events` are the events of the loop's thread.
    """
    candidates = [
        (cause, line, intervals)
        for cause, kinds in CAUSES.items()
        for line, intervals in _intervals_by_line(loop_events, kinds).items()
    ]
    # Each moment gets the first candidate that contains it. Upload preparations come before read-backs, and after the
    # other keys of CAUSES.
    first_read_back = sum(cause != READ_BACK_CAUSE for cause, _, _ in candidates)
    candidates[first_read_back:first_read_back] = [
        (UPLOAD_CAUSE, line, intervals) for line, intervals in activity.upload_preparations.items()
    ]
    candidates += [
        (READ_BACK_CAUSE, line, intervals) for line, intervals in _gaps_after_waits(gaps, loop_events).items()
    ]
    candidates.append((IDLE, -1, activity.queued))
    candidates += [
        (LAUNCHING, line, intervals) for line, intervals in _intervals_by_line(loop_events, LAUNCHES).items()
    ]
    launching = activity.launching
    candidates.append((LAUNCHING, -1, launching if len(launching) else _short_gaps(gaps)))
    attributed, remaining = [], gaps
    for cause, line, intervals in candidates:
        attributed.append((cause, line, remaining.intersection(intervals)))
        remaining = remaining.difference(intervals)
    attributed.append((PYTHON, -1, remaining))
    return tuple(sorted(_sum_by_cause(attributed, steps), key=lambda gap: -gap.seconds))


def launching_intervals(starts: Any, ends: Any) -> Intervals:
    """Return when launching calls ran, including the short times between two calls.

    `starts` and `ends` are those of the calls, sorted by time. In a short time between two calls, the framework
    prepares the next operation.
    """
    previous_ends = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    return Intervals(np.where(starts - previous_ends < MAX_LAUNCH_NS, np.minimum(previous_ends, starts), starts), ends)


def _short_gaps(gaps: Intervals) -> Intervals:
    """Return the short gaps. Without recorded CUDA calls, they count as launching."""
    is_short = gaps.ends - gaps.starts < MAX_LAUNCH_NS
    return Intervals(gaps.starts[is_short], gaps.ends[is_short])


def _intervals_by_line(events: Sequence[LedgerEvent], kinds: frozenset[str]) -> dict[int, Intervals]:
    """Return for each line the times of its events of these kinds."""
    lines: dict[int, list[LedgerEvent]] = {}
    for event in events:
        if event.kind in kinds:
            lines.setdefault(event.line, []).append(event)
    return {
        line: Intervals([event.start for event in group], [event.end for event in group])
        for line, group in lines.items()
    }


def _gaps_after_waits(gaps: Intervals, events: Sequence[LedgerEvent]) -> dict[int, Intervals]:
    """Return for each line the whole gaps that started in its waits for the device."""
    gaps_by_line = {}
    for line, waits in _intervals_by_line(events, CAUSES[READ_BACK_CAUSE]).items():
        starts_in_wait: Any = waits.contains(gaps.starts)
        gaps_by_line[line] = Intervals(gaps.starts[starts_in_wait], gaps.ends[starts_in_wait])
    return gaps_by_line


def _sum_by_cause(attributed: list[tuple[str, int, Intervals]], steps: int) -> list[IdleTime]:
    groups: dict[tuple[str, int], list[Intervals]] = {}
    for cause, line, intervals in attributed:
        if len(intervals):
            groups.setdefault((cause, line), []).append(intervals)
    return [
        IdleTime(cause, line, sum(intervals.length for intervals in group) / 1e9 / steps)
        for (cause, line), group in groups.items()
    ]
