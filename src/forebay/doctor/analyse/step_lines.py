"""All time of a step by line of the script: recorded calls, and samples of the time between them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import is_framework_function
from forebay.doctor.analyse.host_lines import HostLine, loop_seconds, unrecorded_samples
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.loop_samples import trusted_share
from forebay.doctor.analyse.steps import PARTS, REST
from forebay.doctor.analyse.typical_step import split_step
from forebay.doctor.model.events import PYTHON_CODE, EventKind

__all__ = ["StepLines", "longest_host_line", "step_lines"]

# Kinds of recorded calls in which the host itself works. In the others, it waits for computation, or computes.
_HOST_KINDS = (EventKind.UPLOAD, EventKind.INPUT, EventKind.BUILD, EventKind.COMPILE, EventKind.TRANSFORM)
# Packages whose Python code prepares computation, which other threads do.
_PREPARING_PACKAGES = ("jax.", "flax.", "optax.", "equinox.", "haiku.")

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
    if found := loop_seconds(view, samples):
        return _add_loop_seconds(view, seconds, found)
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


def _add_loop_seconds(view: CaptureView, seconds: _Seconds, found: Mapping[int, Mapping[str, float]]) -> float:
    """Add the lines that samples of all steps of the loop show. Return the seconds that count for no line."""
    per_profiled_step = sum(view.host_parts.values()) / view.step_seconds if view.step_seconds else 0.0
    left = view.host_parts[REST]
    for line, functions in found.items():
        for function, each in functions.items():
            seconds[line][function] += each * per_profiled_step
            left -= each * per_profiled_step
    return max(0.0, left)


def longest_host_line(view: CaptureView) -> HostLine | None:
    """Return the line on which the host itself works longest, with these seconds per step; None if there is none.

    Compiled calls, waits for the device, and operations that compute before they return do not count.
    """
    recorded = {(site.line, site.api): site.kind in _HOST_KINDS for site in view.sites}
    eager_lines = {site.line for site in view.sites_of(EventKind.OPS) if not site.api.startswith("jax")}
    found = []
    for each in step_lines(view).lines:
        functions = [
            (name, seconds)
            for name, seconds in each.functions
            if recorded.get((each.line, name), not _computes(name, is_eager=each.line in eager_lines))
        ]
        found.append(HostLine(each.line, sum(seconds for _, seconds in functions), tuple(functions)))
    return max((each for each in found if each.functions), key=lambda each: each.seconds, default=None)


def _computes(function: str, *, is_eager: bool) -> bool:
    """Whether a sampled function may compute. Code on the line of an eager operation may be this operation."""
    if function in ("", PYTHON_CODE):
        return is_eager
    return is_framework_function(function) and not function.startswith(_PREPARING_PACKAGES)
