"""All time of a step by line of the script: recorded calls, and samples of the time between them."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.host_lines import HostLine, unrecorded_samples
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.loop_samples import trusted_share
from forebay.doctor.analyse.steps import PARTS, REST
from forebay.doctor.analyse.typical_step import split_step

__all__ = ["StepLines", "step_lines"]

_Seconds = dict[int, dict[str, float]]  # by line and by call


@dataclass(frozen=True, slots=True)
class StepLines:
    """The lines of a step. All seconds together are those of the step."""

    lines: tuple[HostLine, ...]  # longest first; what they call is a recorded call or a sampled function
    other_seconds: float  # sampled time that does not count for its line (see `trusted_share`)
    unknown_seconds: float  # of calls and samples without a line


def step_lines(view: CaptureView) -> StepLines:
    """Divide the time of the loop's thread in a step. Without steps, all seconds are zero."""
    total = sum(view.host_parts.values())
    if view.steps is None or not total:
        return StepLines((), 0.0, 0.0)
    seconds: _Seconds = defaultdict(lambda: defaultdict(float))
    _add_recorded_calls(view, seconds)
    other = _add_samples(view, seconds)
    scale = view.step_seconds / total  # profiled steps are longer than unprofiled ones
    lines, unknown = [], 0.0
    for index, calls in seconds.items():
        line, line_seconds = view.line(index), sum(calls.values()) * scale
        if line is None:
            unknown += line_seconds
            continue
        functions = sorted(((name, each * scale) for name, each in calls.items()), key=lambda call: -call[1])
        lines.append(HostLine(line, line_seconds, tuple(functions)))
    longest_first = tuple(sorted(lines, key=lambda each: -each.seconds))
    known = sum(each.seconds for each in longest_first) + other * scale + unknown
    return StepLines(longest_first, other * scale, unknown + max(0.0, view.step_seconds - known))


def _add_recorded_calls(view: CaptureView, seconds: _Seconds) -> None:
    """Add the time of recorded calls. Time in several calls counts for the first part of PARTS."""
    steps = view.steps
    assert steps is not None
    counted, means = Intervals([], []), split_step(steps, view.capture.events)
    for part, kinds in PARTS.items():
        factor = view.host_parts[part] / means[part] if means[part] else 0.0  # of a typical step and the mean step
        sites: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for event in view.capture.events:
            if event.thread == steps.thread and event.kind in kinds and event.end > steps.start:
                sites.setdefault((event.line, event.api), []).append((event.start, event.end))
        for (line, api), spans in sites.items():
            starts, ends = np.clip(np.array(spans, np.int64).T, steps.start, steps.end)
            extended = counted.union(Intervals(starts, ends))
            seconds[line][api] += factor * (extended.length - counted.length) / 1e9 / len(steps)
            counted = extended


def _add_samples(view: CaptureView, seconds: _Seconds) -> float:
    """Add the sampled lines of the time outside of recorded calls. Return the seconds that count for no line."""
    rest, samples = view.host_parts[REST], unrecorded_samples(view)
    sampled = sum(sample.nanoseconds for sample in samples)
    if not sampled:
        seconds[-1][""] += rest
        return 0.0
    counts: dict[int, int] = defaultdict(int)
    for sample in samples:
        counts[sample.line] += 1
    left = 0.0
    for sample in samples:
        share = trusted_share(counts[sample.line])
        sample_seconds = rest * sample.nanoseconds / sampled
        seconds[sample.line][sample.function] += sample_seconds * share
        left += sample_seconds * (1 - share)
    return left
