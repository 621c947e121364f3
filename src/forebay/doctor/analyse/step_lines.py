"""The whole time of a step, divided among the lines of the script.

The hooks measured the time of recorded calls. Host samples show which lines take the time between these calls.
"""

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

# Kinds of recorded calls in which the host itself works. In calls of all other kinds, it waits for computation or
# computes.
_HOST_KINDS = (EventKind.UPLOAD, EventKind.INPUT, EventKind.BUILD, EventKind.COMPILE, EventKind.TRANSFORM)
# Packages whose Python code prepares computation. Other threads run the computation.
_PREPARING_PACKAGES = ("jax.", "flax.", "optax.", "equinox.", "haiku.")

_Seconds = dict[int, dict[str, float]]  # index of a line -> recorded call or sampled function -> seconds per step


@dataclass(frozen=True, slots=True)
class StepLines:
    """The seconds of a step by line. All seconds together are the step time."""

    lines: tuple[HostLine, ...]  # longest first; their `functions` are recorded calls and sampled functions
    other_seconds: float  # sampled time that lines do not get because they have few samples (see `trusted_share`)
    unknown_seconds: float  # time of calls and samples without a line


def step_lines(view: CaptureView) -> StepLines:
    """Divide the step time of the loop's thread among lines.

    Without steps, return a result whose seconds are all zero.
    """
    total = sum(view.host_parts.values())
    if view.steps is None or not total:
        return StepLines((), 0.0, 0.0)
    seconds: _Seconds = defaultdict(lambda: defaultdict(float))
    _add_recorded_calls(view, seconds)
    other = _add_samples(view, seconds)
    scale = view.step_seconds / total  # with device records, `host_parts` are those of a profiled step, which is longer
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
    """Add the time of recorded calls to `seconds`.

    If calls overlap, their common time counts for the call of the first part in PARTS.
    """
    steps = view.steps
    assert steps is not None
    counted, means = Intervals([], []), split_step(steps, view.capture.events)
    for part, kinds in PARTS.items():
        factor = view.host_parts[part] / means[part] if means[part] else 0.0  # ratio of the typical to the mean step
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
    """Add the time outside of recorded calls to the sampled lines.

    Return the seconds that no line gets (see `trusted_share`). Without samples, the line of this time is unknown.
    """
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
    """Add `found`, the result of `loop_seconds`, to `seconds`.

    Return the seconds outside of recorded calls that no line gets.
    """
    per_profiled_step = sum(view.host_parts.values()) / view.step_seconds if view.step_seconds else 0.0
    left = view.host_parts[REST]
    for line, functions in found.items():
        for function, each in functions.items():
            seconds[line][function] += each * per_profiled_step
            left -= each * per_profiled_step
    return max(0.0, left)


def longest_host_line(view: CaptureView) -> HostLine | None:
    """Return the line on which the host itself works longest; None if there is none.

    The result has only the seconds of this work. Compiled calls, waits for the device, and operations that compute
    before they return are not included.
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
    """Whether a sampled function may compute.

    Python code and unknown functions may compute only on a line with an eager operation (`is_eager`), which they may be
    a part of.
    """
    if function in ("", PYTHON_CODE):
        return is_eager
    return is_framework_function(function) and not function.startswith(_PREPARING_PACKAGES)
