"""Host time of each line of the script, estimated from host samples.

With a loop, this is the time per step outside of recorded calls. Without a loop, it is the time in the whole run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.loop_samples import sampled_seconds, trusted_share
from forebay.doctor.analyse.steps import RECORDED_KINDS
from forebay.doctor.model.events import HostSample, LedgerEvent, Line

__all__ = [
    "MIN_SAMPLES",
    "HostLine",
    "host_lines",
    "lines_inside",
    "loop_seconds",
    "run_lines",
    "samples_inside",
    "unrecorded_samples",
]

MIN_SAMPLES = 20  # of all lines together; fewer are not enough for an estimate per line
ENOUGH_SAMPLES = 60  # in the profiled steps; with fewer, samples of all steps of the loop are used
MIN_LINE_SAMPLES = 3  # of one line; fewer may be a coincidence


@dataclass(frozen=True, slots=True)
class HostLine:
    """The host time of one line of the script, per step or in the run."""

    line: Line
    seconds: float
    functions: tuple[tuple[str, float], ...]  # name and seconds of each function that the line called, longest first

    @property
    def function(self) -> str:
        """The name of the function that takes most of the time; "" if unknown."""
        return self.functions[0][0]


def host_lines(view: CaptureView) -> tuple[HostLine, ...]:
    """Return the lines of the loop's thread with their seconds per step, longest first.

    The result is empty if there are too few samples. The seconds add up to less than `unexplained_seconds` for two
    reasons: some samples have no line of the script, and `trusted_share` reduces the time of each line, most for lines
    with few samples. If the profiled steps have few samples, the result uses samples of all steps of the loop.
    """
    samples = unrecorded_samples(view)
    seconds = loop_seconds(view, samples)
    if view.steps is not None and len(samples) < ENOUGH_SAMPLES and (seconds or len(samples) < MIN_SAMPLES):
        return _sorted_lines(view, seconds)
    if not samples:
        return ()
    seconds_per_ns = unexplained_seconds(view) / sum(sample.nanoseconds for sample in samples)
    return tuple(sorted(_lines_with_trusted_time(view, samples, seconds_per_ns), key=lambda each: -each.seconds))


def loop_seconds(view: CaptureView, samples: Sequence[HostSample]) -> Mapping[int, Mapping[str, float]]:
    """Return the seconds per step by line and function, from all steps of the loop.

    The result is empty if `samples`, those of the profiled steps, are enough for an estimate. On a busy machine, the
    sampler is often late, so each sample stands for a long time, and a few samples are not enough. The result is also
    empty if all steps together have too few samples.
    """
    if view.steps is None or len(samples) >= ENOUGH_SAMPLES:
        return {}
    return sampled_seconds(view, ENOUGH_SAMPLES, MIN_LINE_SAMPLES)


def run_lines(view: CaptureView) -> tuple[HostLine, ...]:
    """Return the lines of a script without a loop, longest first.

    The seconds of a line are those in the whole run. They add up to at most the duration of the run, because all lines
    are those of one thread: the thread with the most sampled time. The result is empty if the script has a loop, or if
    there are too few samples.
    """
    nanoseconds = Counter[int]()  # by thread
    for sample in view.capture.samples:
        nanoseconds[sample.thread] += sample.nanoseconds
    if view.steps is not None or not nanoseconds:
        return ()
    (thread, total), *_ = nanoseconds.most_common(1)
    samples = [sample for sample in view.capture.samples if sample.thread == thread]
    if len(samples) < MIN_SAMPLES or not total:
        return ()
    return _group_by_line(view, samples, min(1e-9, view.capture.seconds / total))


def _lines_with_trusted_time(
    view: CaptureView, samples: Iterable[HostSample], seconds_per_ns: float
) -> Iterator[HostLine]:
    """Yield the lines of these samples; multiply the time of each line by its `trusted_share`."""
    counts = Counter(view.line(sample.line) for sample in samples)
    for each in _group_by_line(view, samples, seconds_per_ns):
        share = trusted_share(counts[each.line])
        functions = tuple((name, seconds * share) for name, seconds in each.functions)
        yield HostLine(each.line, each.seconds * share, functions)


def _group_by_line(view: CaptureView, samples: Iterable[HostSample], seconds_per_ns: float) -> tuple[HostLine, ...]:
    functions: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts = Counter(sample.line for sample in samples)
    for sample in (sample for sample in samples if counts[sample.line] >= MIN_LINE_SAMPLES):
        functions[sample.line][sample.function] += sample.nanoseconds * seconds_per_ns
    return _sorted_lines(view, functions)


def _sorted_lines(view: CaptureView, functions: Mapping[int, Mapping[str, float]]) -> tuple[HostLine, ...]:
    """Return the lines of the script, longest first.

    `functions` maps the index of each line to the seconds of each function that the line called.
    """
    found = []
    for index, by_function in functions.items():
        line = view.line(index)
        if line is not None:
            longest_first = tuple(sorted(by_function.items(), key=lambda item: -item[1]))
            found.append(HostLine(line, sum(by_function.values()), longest_first))
    return tuple(sorted(found, key=lambda each: -each.seconds))


def lines_inside(view: CaptureView, events: Iterable[LedgerEvent]) -> tuple[HostLine, ...]:
    """Return the lines that threads execute during these events, longest first.

    The seconds of a line are those in the whole run.
    """
    return _group_by_line(view, samples_inside(view, events), 1e-9)


def samples_inside(view: CaptureView, events: Iterable[LedgerEvent]) -> list[HostSample]:
    """Return the samples that were taken during these events on the threads of the events."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread
    for event in events:
        spans[event.thread].append((event.start, event.end))
    found: list[HostSample] = []
    for thread, of_thread in spans.items():
        intervals = Intervals([start for start, _ in of_thread], [end for _, end in of_thread])
        samples = [sample for sample in view.capture.samples if sample.thread == thread]
        is_inside = intervals.contains([sample.time for sample in samples]).tolist()
        found += [sample for sample, inside in zip(samples, is_inside, strict=True) if inside]
    return sorted(found, key=lambda sample: sample.time)


def unrecorded_samples(view: CaptureView) -> list[HostSample]:
    """Return the samples of the loop's thread in the profiled steps, outside of recorded calls."""
    steps = view.steps
    if steps is None:
        return []
    samples = [
        sample
        for sample in view.capture.samples
        if sample.thread == steps.thread and steps.start < sample.time <= steps.end
    ]
    events = [event for event in view.capture.events if event.thread == steps.thread and event.kind in RECORDED_KINDS]
    recorded = Intervals([event.start for event in events], [event.end for event in events])
    is_recorded = recorded.contains([sample.time for sample in samples]).tolist()
    return [sample for sample, is_inside in zip(samples, is_recorded, strict=True) if not is_inside]
