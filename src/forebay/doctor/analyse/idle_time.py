"""Who kept the device waiting: each moment it stood still is charged to what the loop was busy with. Pure.

What a step does beside its calls, Python and launches, is charged to itself; but where the device fell idle while the
loop was waiting for it, that wait is the reason: without it, the loop would have queued more work by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import Event, Kind

__all__ = ["CAUSES", "IDLE", "LAUNCHING", "PYTHON", "WAY", "Gap", "charge_gaps", "launching_between"]

# By which name a moment is charged; of several at once, the first.
CAUSES: dict[str, frozenset[str]] = {
    "compiling": frozenset({Kind.COMPILE}),
    "building again": frozenset({Kind.BUILD}),
    "waiting for input": frozenset({Kind.INPUT}),
    "host to device": frozenset({Kind.UPLOAD, Kind.MOVE}),
    "device to host": frozenset({Kind.DOWNLOAD, Kind.SYNC}),
}
LAUNCHING, PYTHON, IDLE = "launching", "Python", "idle"
WAITS, SENDS = "device to host", "host to device"
LONGEST_LAUNCH = 200_000  # nanoseconds between two operations: Python that takes longer does something else
WAY = 10_000  # nanoseconds from a call to the device and back, at most: so long no work lies there
LAUNCHES = frozenset({Kind.RUN, Kind.TRANSFORM, Kind.OPS})


@dataclass(frozen=True, slots=True)
class Gap:
    """Time of a step in which the device stood still for one reason."""

    cause: str  # of CAUSES; launching, Python; or idle: work was queued, and the device had not begun
    line: int  # as events count them; -1 where nobody's
    seconds: float  # of a mean step
    per_step: float  # how often


def charge_gaps(
    gaps: Intervals,
    events: Sequence[Event],
    thread: int,
    steps: int,
    *,
    launching: Intervals,
    queued: Intervals,
    pending: Mapping[int, Intervals],
) -> tuple[Gap, ...]:
    """Every moment of these gaps, once.

    `launching`: when operations were called, one after the other; `queued`: when something lay in the device's queue;
    `pending`: by line, when data that was to be uploaded was made ready.
    """
    own = [event for event in events if event.thread == thread]
    charges = [(cause, line, when) for cause, kinds in CAUSES.items() for line, when in _by_line(own, kinds).items()]
    first = sum(cause != WAITS for cause, _, _ in charges)
    charges[first:first] = [(SENDS, line, when) for line, when in pending.items()]
    charges += [(WAITS, line, when) for line, when in _waited(gaps, own).items()]
    charges.append((IDLE, -1, queued))
    charges += [(LAUNCHING, line, when) for line, when in _by_line(own, LAUNCHES).items()]
    charges.append((LAUNCHING, -1, launching if len(launching) else _short(gaps)))
    found, left = [], gaps
    for cause, line, when in charges:
        found.append((cause, line, left.within(when)))
        left = left.without(when)
    found.append((PYTHON, -1, left))
    return tuple(sorted(_added(found, steps), key=lambda gap: -gap.seconds))


def launching_between(starts: Any, ends: Any) -> Intervals:
    """Inside calls that queue something, and from one of them to the next where that follows soon: what a framework
    does there it does to call an operation. Calls come in the order of time."""
    before = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    return Intervals(np.where(starts - before < LONGEST_LAUNCH, np.minimum(before, starts), starts), ends)


def _short(gaps: Intervals) -> Intervals:
    """Where calls of CUDA's were not recorded: a loop that queues one operation after the other leaves such gaps."""
    short = gaps.ends - gaps.starts < LONGEST_LAUNCH
    return Intervals(gaps.starts[short], gaps.ends[short])


def _by_line(events: Sequence[Event], kinds: frozenset[str]) -> dict[int, Intervals]:
    lines: dict[int, list[Event]] = {}
    for event in events:
        if event.kind in kinds:
            lines.setdefault(event.line, []).append(event)
    return {line: Intervals([e.start for e in same], [e.end for e in same]) for line, same in lines.items()}


def _waited(gaps: Intervals, events: Sequence[Event]) -> dict[int, Intervals]:
    """Gaps that began while the loop waited for the device, whole, by the line that waited."""
    found = {}
    for line, when in _by_line(events, CAUSES[WAITS]).items():
        during: Any = when.holds(gaps.starts)
        found[line] = Intervals(gaps.starts[during], gaps.ends[during])
    return found


def _added(found: list[tuple[str, int, Intervals]], steps: int) -> list[Gap]:
    sums: dict[tuple[str, int], list[Intervals]] = {}
    for cause, line, when in found:
        if len(when):
            sums.setdefault((cause, line), []).append(when)
    return [
        Gap(cause, line, sum(when.length for when in same) / 1e9 / steps, sum(map(len, same)) / steps)
        for (cause, line), same in sums.items()
    ]
