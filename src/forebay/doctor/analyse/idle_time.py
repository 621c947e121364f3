"""Attribution of the idle time of the device to what the loop did at that time.

Time outside of events is Python or launching. If the device became idle while the loop waited for it, that wait is the
cause: without it, the loop would have queued more work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
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

# Causes and their events. If several apply at once, the first counts.
CAUSES: dict[str, frozenset[str]] = {
    "compiling": frozenset({EventKind.COMPILE}),
    "building again": frozenset({EventKind.BUILD}),
    "waiting for input": frozenset({EventKind.INPUT}),
    "host to device": frozenset({EventKind.UPLOAD, EventKind.MOVE}),
    "device to host": frozenset({EventKind.DOWNLOAD, EventKind.SYNC}),
}
LAUNCHING, PYTHON, IDLE = "launching", "Python", "idle"
READ_BACK_CAUSE, UPLOAD_CAUSE = "device to host", "host to device"
LONGEST_LAUNCH_NS = 200_000  # between two operations; a longer time is other Python code
CALL_LATENCY_NS = 10_000  # from a call to the start of its operation, at most
LAUNCHES = frozenset({EventKind.RUN, EventKind.TRANSFORM, EventKind.OPS})


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the device in a step, for one cause and line."""

    cause: str  # a key of CAUSES, LAUNCHING, PYTHON, or IDLE: work was queued but had not begun
    line: int  # index into the capture's lines; -1 if unknown
    seconds: float  # in a mean step
    per_step: float  # number of gaps in a mean step


@dataclass(frozen=True, slots=True)
class QueueActivity:
    """When the host worked for the queue of the device."""

    launching: Intervals  # the host called operations one after the other
    queued: Intervals  # the queue held work that had not begun
    upload_preparations: Mapping[int, Intervals]  # by line: the host prepared data for an upload


def attribute_idle(
    gaps: Intervals, own: Sequence[LedgerEvent], steps: int, activity: QueueActivity
) -> tuple[IdleTime, ...]:
    """Attribute every moment of the gaps to exactly one cause. `own` are the events of the loop's thread."""
    candidates = [(cause, line, when) for cause, kinds in CAUSES.items() for line, when in _by_line(own, kinds).items()]
    first = sum(cause != READ_BACK_CAUSE for cause, _, _ in candidates)
    candidates[first:first] = [(UPLOAD_CAUSE, line, when) for line, when in activity.upload_preparations.items()]
    candidates += [(READ_BACK_CAUSE, line, when) for line, when in _gaps_after_waits(gaps, own).items()]
    candidates.append((IDLE, -1, activity.queued))
    candidates += [(LAUNCHING, line, when) for line, when in _by_line(own, LAUNCHES).items()]
    launching = activity.launching
    candidates.append((LAUNCHING, -1, launching if len(launching) else _short_gaps(gaps)))
    found, left = [], gaps
    for cause, line, when in candidates:
        found.append((cause, line, left.intersection(when)))
        left = left.difference(when)
    found.append((PYTHON, -1, left))
    return tuple(sorted(_sum_by_cause(found, steps), key=lambda gap: -gap.seconds))


def launching_intervals(starts: Any, ends: Any) -> Intervals:
    """Return the time in launching calls, and between two of them that follow each other closely.

    The calls are sorted by time. Between close calls, the framework prepares the next operation.
    """
    before = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    return Intervals(np.where(starts - before < LONGEST_LAUNCH_NS, np.minimum(before, starts), starts), ends)


def _short_gaps(gaps: Intervals) -> Intervals:
    """Return short gaps, which separate launches cause. Used if CUDA calls were not recorded."""
    short = gaps.ends - gaps.starts < LONGEST_LAUNCH_NS
    return Intervals(gaps.starts[short], gaps.ends[short])


def _by_line(events: Sequence[LedgerEvent], kinds: frozenset[str]) -> dict[int, Intervals]:
    lines: dict[int, list[LedgerEvent]] = {}
    for event in events:
        if event.kind in kinds:
            lines.setdefault(event.line, []).append(event)
    return {line: Intervals([e.start for e in same], [e.end for e in same]) for line, same in lines.items()}


def _gaps_after_waits(gaps: Intervals, events: Sequence[LedgerEvent]) -> dict[int, Intervals]:
    """Return by line the whole gaps that began while the loop waited for the device."""
    found = {}
    for line, when in _by_line(events, CAUSES[READ_BACK_CAUSE]).items():
        during: Any = when.contains(gaps.starts)
        found[line] = Intervals(gaps.starts[during], gaps.ends[during])
    return found


def _sum_by_cause(found: list[tuple[str, int, Intervals]], steps: int) -> list[IdleTime]:
    sums: dict[tuple[str, int], list[Intervals]] = {}
    for cause, line, when in found:
        if len(when):
            sums.setdefault((cause, line), []).append(when)
    return [
        IdleTime(cause, line, sum(when.length for when in same) / 1e9 / steps, sum(map(len, same)) / steps)
        for (cause, line), same in sums.items()
    ]
