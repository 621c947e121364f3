"""The lines of the script that take the time of a step in which no hook recorded a call."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import PARTS
from forebay.doctor.model.events import HostSample, LedgerEvent, Line

__all__ = ["HostLine", "host_lines", "samples_inside"]

FEWEST_SAMPLES = 60  # fewer say too little about the lines of a step
_RECORDED_KINDS = frozenset().union(*PARTS.values())


@dataclass(frozen=True, slots=True)
class HostLine:
    """The time of one line outside of recorded calls."""

    line: Line
    seconds: float  # per step
    functions: tuple[tuple[str, float], ...]  # name and seconds per step of what the line called, longest first

    @property
    def function(self) -> str:
        """The function that takes most of the time; empty if unknown."""
        return self.functions[0][0]


def host_lines(view: CaptureView) -> tuple[HostLine, ...]:
    """Return the lines of the loop's thread, longest first; empty without enough samples.

    Their seconds add up to at most `unexplained_seconds`: some samples have no line of the script.
    """
    samples = _unrecorded_samples(view) if view.steps is not None else []
    if len(samples) < FEWEST_SAMPLES:
        return ()
    seconds_per_ns = unexplained_seconds(view) / sum(sample.nanoseconds for sample in samples)
    functions: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        functions[sample.line][sample.function] += sample.nanoseconds * seconds_per_ns
    found = []
    for index, by_function in functions.items():
        line = view.line(index)
        if line is not None:
            longest_first = tuple(sorted(by_function.items(), key=lambda item: -item[1]))
            found.append(HostLine(line, sum(by_function.values()), longest_first))
    return tuple(sorted(found, key=lambda each: -each.seconds))


def samples_inside(view: CaptureView, events: Iterable[LedgerEvent]) -> list[HostSample]:
    """Return the samples of the loop's thread during these events."""
    spans = [(event.start, event.end) for event in events]
    intervals = Intervals([start for start, _ in spans], [end for _, end in spans])
    thread = view.steps.thread if view.steps else None
    samples = [sample for sample in view.capture.samples if sample.thread == thread]
    is_inside = intervals.contains([sample.time for sample in samples]).tolist()
    return [sample for sample, inside in zip(samples, is_inside, strict=True) if inside]


def _unrecorded_samples(view: CaptureView) -> list[HostSample]:
    """Return the samples of the loop's thread in the profiled steps, without those inside recorded calls."""
    steps = view.steps
    assert steps is not None
    samples = [
        sample
        for sample in view.capture.samples
        if sample.thread == steps.thread and steps.start < sample.time <= steps.end
    ]
    events = [event for event in view.capture.events if event.thread == steps.thread and event.kind in _RECORDED_KINDS]
    recorded = Intervals([event.start for event in events], [event.end for event in events])
    is_recorded = recorded.contains([sample.time for sample in samples]).tolist()
    return [sample for sample, is_inside in zip(samples, is_recorded, strict=True) if not is_inside]
