"""Where the steps of a capture are, and what a step's time is made of. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import LOOP_MARKS, Event, Kind

__all__ = ["PARTS", "Steps", "find_steps", "partition"]

FEWEST = 3  # steps, or nothing can be said of a loop
FEWEST_SPANS = 20  # of operations: fewer may be one call that takes its time, as making a model does
WARM_UP_SHARE = 0.2  # of a short loop's steps, where no window was found

# What a step's time may be spent on, and which events are it; a moment in several is counted for the first of them.
PARTS: dict[str, frozenset[str]] = {
    "compiling": frozenset({Kind.COMPILE}),
    "building again": frozenset({Kind.BUILD}),
    "waiting for input": frozenset({Kind.INPUT}),
    "host to device": frozenset({Kind.UPLOAD, Kind.MOVE}),
    "device to host": frozenset({Kind.DOWNLOAD, Kind.SYNC}),
    "compiled calls": frozenset({Kind.RUN}),
}
REST = "everything else"


@dataclass(frozen=True, slots=True)
class Steps:
    """Steady steps, one after the other, on one thread."""

    anchor: tuple[str, str, int]
    thread: int
    edges: tuple[int, ...]  # where the first begins, the second, ..., and the last ends

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
        """The median step."""
        lengths = sorted(after - before for before, after in zip(self.edges, self.edges[1:], strict=False))
        middle = len(lengths) // 2
        return (lengths[middle] if len(lengths) % 2 else (lengths[middle - 1] + lengths[middle]) / 2) / 1e9


def find_steps(capture: Capture) -> Steps | None:
    """The steps of the window; where the script ended before there was one, those of whatever came again most often."""
    window, events = capture.window, capture.events
    if window.anchor is not None:
        marks = [event for event in events if event[:3] == window.anchor and window.start <= event.end <= window.end]
        return _steps(window.anchor, marks)
    for kinds in LOOP_MARKS:
        found = _most_often(event for event in events if event.kind in kinds)
        if found is not None:
            return _steps(found[0][:3], found[int(len(found) * WARM_UP_SHARE) :])
    return _spans(event for event in events if event.kind == Kind.OPS)


def _spans(operations: Iterable[Event]) -> Steps | None:
    """A loop that does nothing but compute: of its operations, some milliseconds together are an event, and a step."""
    found = _most_often(operations) or []
    return _steps(found[0][:3], found[int(len(found) * WARM_UP_SHARE) :]) if len(found) >= FEWEST_SPANS else None


def _most_often(events: Iterable[Event]) -> list[Event] | None:
    sites: dict[tuple[str, str, int], list[Event]] = {}
    for event in events:
        sites.setdefault((event.kind, event.api, event.line), []).append(event)
    most = max(sites.values(), key=len, default=[])
    return most if len(most) > FEWEST else None


def _steps(anchor: tuple[str, str, int], marks: Sequence[Event]) -> Steps | None:
    thread = marks[-1].thread if marks else 0
    edges = tuple(mark.end for mark in marks if mark.thread == thread)
    return Steps(anchor, thread, edges) if len(edges) > FEWEST else None


def partition(steps: Steps, events: Iterable[Event]) -> dict[str, float]:
    """Seconds of a mean step, by what they went on; together they are the step."""
    own = [event for event in events if event.thread == steps.thread]
    taken: list[tuple[int, int]] = []
    shares: dict[str, float] = {}
    for part, kinds in PARTS.items():
        wanted = _union((event.start, event.end) for event in own if event.kind in kinds)
        inside = [(max(start, steps.start), min(end, steps.end)) for start, end in wanted]
        both = _union([*taken, *((start, end) for start, end in inside if start < end)])
        shares[part] = (_length(both) - _length(taken)) / 1e9 / len(steps)
        taken = both
    shares[REST] = max(0.0, (steps.end - steps.start - _length(taken)) / 1e9 / len(steps))
    return shares


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same without overlaps, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)
