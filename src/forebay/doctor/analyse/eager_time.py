"""The time of steps that Python runs operation by operation: in the framework, and in computation."""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.framework import is_framework_function
from forebay.doctor.analyse.host_lines import MIN_SAMPLES, unrecorded_samples
from forebay.doctor.model.events import PYTHON_CODE

__all__ = ["EagerTime", "eager_time"]

MIN_SMALL = 20  # operations on small tensors in the profiled steps; fewer say too little about the time of a call


@dataclass(frozen=True, slots=True)
class EagerTime:
    """The seconds per unprofiled step in functions of the framework, with all operations that they run."""

    operations: float  # per step
    seconds: float
    computing: float | None  # seconds of `seconds` in which operations compute; None if unknown
    other_seconds: float  # per step, in neither functions of the framework nor recorded calls

    @property
    def calling(self) -> float:
        """The seconds per step that are no computation."""
        return self.seconds - (self.computing or 0.0)


def eager_time(view: CaptureView, sites: Sequence[CallSite]) -> EagerTime | None:
    """Return the time of steps with these OPS sites; None without enough samples of the stack.

    A sample belongs to the framework if its line calls a function of a framework, or if operations were called on its
    line and the function is unknown. The shares of the samples apply to the time outside of recorded calls.
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


def _computing(view: CaptureView, sites: Sequence[CallSite], most: float) -> float | None:
    """Return the seconds per step in which operations compute, at most `most`.

    An operation computes for as long as it takes longer than an operation on small tensors.
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
    return min(most, max(0.0, computing) * view.step_seconds / total) if total else 0.0
