"""The time of eager steps, in which Python calls operations one by one.

It consists of the overhead of the calls, of computation, and of other Python code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.framework import is_framework_function
from forebay.doctor.analyse.host_lines import MIN_SAMPLES, unrecorded_samples
from forebay.doctor.model.events import PYTHON_CODE

__all__ = ["EagerTime", "eager_time"]

MIN_SMALL = 20  # operations on small tensors in the profiled steps; fewer do not show the overhead of a call


@dataclass(frozen=True, slots=True)
class EagerTime:
    """The parts of an unprofiled eager step. All times are seconds per step."""

    operations: float  # number of operations per step
    seconds: float  # in functions of the framework, including the operations that they run
    computing: float | None  # the part of `seconds` in which operations compute; None if unknown
    other_seconds: float  # neither in functions of the framework nor in recorded calls

    @property
    def call_overhead(self) -> float:
        """The part of `seconds` in which the framework calls operations: `seconds` without `computing`."""
        return self.seconds - (self.computing or 0.0)


def eager_time(view: CaptureView, sites: Sequence[CallSite]) -> EagerTime | None:
    """Return the time of steps with these OPS sites; None if samples are too few.

    A sample belongs to the framework in two cases: its line was calling a function of a framework, or its line is the
    line of an OPS site and was calling no known function. The time outside of recorded calls is divided in the same
    ratio as the time of the samples.
    """
    samples = unrecorded_samples(view)
    total = sum(sample.nanoseconds for sample in samples)
    if len(samples) < MIN_SAMPLES or not total:
        return None
    lines = {event.line for site in sites for event in site.events}
    eager = sum(
        sample.nanoseconds
        for sample in samples
        if is_framework_function(sample.function) or (sample.line in lines and sample.function in ("", PYTHON_CODE))
    )
    seconds = unexplained_seconds(view) * eager / total
    operations = sum(sum(filter(None, site.values("count"))) / site.steps for site in sites)
    return EagerTime(operations, seconds, _computing(view, sites, seconds), unexplained_seconds(view) - seconds)


def _computing(view: CaptureView, sites: Sequence[CallSite], max_seconds: float) -> float | None:
    """Return the seconds per step in which operations compute; None if unknown.

    Assume that an operation on small tensors takes only the overhead of its call. Any other operation takes the same
    overhead, and computes for the rest of its time. The result is at most `max_seconds`.
    """
    assert view.steps is not None
    small = sum(sum(filter(None, site.values("small"))) for site in sites)
    if small < MIN_SMALL:
        return None
    count = sum(sum(filter(None, site.values("count"))) for site in sites)
    inside = sum(event.seconds for site in sites for event in site.events)
    small_seconds = sum(sum(filter(None, site.values("small_seconds"))) for site in sites)
    computing = inside - small_seconds - (count - small) * small_seconds / small
    total = (view.steps.end - view.steps.start) / 1e9
    return min(max_seconds, max(0.0, computing) * view.step_seconds / total) if total else 0.0
