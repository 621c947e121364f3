"""The steps of a capture, and the parts of a step on the loop's thread."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import LOOP_MARKS, EventKind, LedgerEvent

__all__ = ["PARTS", "Steps", "find_steps", "split_step"]

FEWEST_STEPS = 3  # with fewer there is no loop
FEWEST_SPANS = 20  # of operations; fewer may be one long call, such as building a model
WARM_UP_SHARE = 0.2  # of the steps of a short loop without a profiling window

# The parts of a step and their events. Time that belongs to several parts counts for the first.
PARTS: dict[str, frozenset[str]] = {
    "compiling": frozenset({EventKind.COMPILE}),
    "building again": frozenset({EventKind.BUILD}),
    "waiting for input": frozenset({EventKind.INPUT}),
    "host to device": frozenset({EventKind.UPLOAD, EventKind.MOVE}),
    "device to host": frozenset({EventKind.DOWNLOAD, EventKind.SYNC}),
    "compiled calls": frozenset({EventKind.RUN}),
}
REST = "everything else"


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive steady steps on one thread."""

    anchor: tuple[str, str, int]
    thread: int
    edges: tuple[int, ...]  # nanoseconds: the start of each step, and the end of the last

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def start(self) -> int:
        return self.edges[0]

    @property
    def end(self) -> int:
        return self.edges[-1]

    @property
    def seconds(self) -> float:
        """The median step time."""
        lengths = sorted(after - before for before, after in zip(self.edges, self.edges[1:], strict=False))
        middle = len(lengths) // 2
        return (lengths[middle] if len(lengths) % 2 else (lengths[middle - 1] + lengths[middle]) / 2) / 1e9


def find_steps(capture: Capture) -> Steps | None:
    """Find the steps of the profiling window.

    If the script ended before the window, the most frequent event marks the steps.
    """
    window, events = capture.window, capture.events
    if window.anchor is not None:
        marks = [event for event in events if event[:3] == window.anchor and window.start <= event.end <= window.end]
        return _steps(window.anchor, marks)
    for kinds in LOOP_MARKS:
        found = _most_frequent(event for event in events if event.kind in kinds)
        if found is not None:
            return _steps(found[0][:3], found[int(len(found) * WARM_UP_SHARE) :])
    return _operation_spans(event for event in events if event.kind == EventKind.OPS)


def _operation_spans(operations: Iterable[LedgerEvent]) -> Steps | None:
    """Find steps in a loop without any other event: each span of operations is one step."""
    found = _most_frequent(operations) or []
    return _steps(found[0][:3], found[int(len(found) * WARM_UP_SHARE) :]) if len(found) >= FEWEST_SPANS else None


def _most_frequent(events: Iterable[LedgerEvent]) -> list[LedgerEvent] | None:
    sites: dict[tuple[str, str, int], list[LedgerEvent]] = {}
    for event in events:
        sites.setdefault((event.kind, event.api, event.line), []).append(event)
    most = max(sites.values(), key=len, default=[])
    return most if len(most) > FEWEST_STEPS else None


def _steps(anchor: tuple[str, str, int], marks: Sequence[LedgerEvent]) -> Steps | None:
    thread = marks[-1].thread if marks else 0
    edges = tuple(mark.end for mark in marks if mark.thread == thread)
    return Steps(anchor, thread, edges) if len(edges) > FEWEST_STEPS else None


def split_step(steps: Steps, events: Iterable[LedgerEvent]) -> dict[str, float]:
    """Return the seconds of each part of the mean step; the parts add up to the step."""
    own = [event for event in events if event.thread == steps.thread]
    taken = Intervals([], [])
    parts: dict[str, float] = {}
    for part, kinds in PARTS.items():
        inside = [event for event in own if event.kind in kinds]
        starts, ends = [event.start for event in inside], [event.end for event in inside]
        clipped = Intervals(np.clip(starts, steps.start, steps.end), np.clip(ends, steps.start, steps.end))
        both = taken.union(clipped)
        parts[part] = (both.length - taken.length) / 1e9 / len(steps)
        taken = both
    parts[REST] = max(0.0, (steps.end - steps.start - taken.length) / 1e9 / len(steps))
    return parts
