"""The cost of events in a step of the loop's thread, and the time that overlap can save."""

from collections.abc import Iterable
from statistics import fmean, median

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import REST, Steps
from forebay.doctor.model.events import LedgerEvent

__all__ = ["cost_of", "rest_of_step", "unexplained_seconds", "gain_without_wait", "gain_by_overlap"]

ROUND_TRIP_SECONDS = 10e-6  # to read a few bytes from a GPU; the fastest GPU that was measured
SHARE_SURELY_HIDDEN = 0.5  # of the time that could overlap, if a device computes and host cores are free


def cost_of(view: CaptureView, events: Iterable[LedgerEvent]) -> float:
    """Return the seconds per step that events cost.

    Profiling makes events longer together with their step, so their share of a profiled step counts. Rare events are
    not in the median step; their mean time is added to it.
    """
    if not view.steps or not view.step_seconds:
        return 0.0
    profiled = max(view.steps.seconds, view.step_seconds)
    each = _seconds_in_each_step(view.steps, events)
    mean = fmean(each)
    rare = mean - min(mean, median(each))
    return view.step_seconds * min(1.0, mean / (profiled + rare))


def rest_of_step(view: CaptureView, seconds: float) -> float:
    return max(0.0, view.step_seconds - seconds)


def unexplained_seconds(view: CaptureView) -> float:
    """Return the seconds per step without an event: Python, launches and, without a GPU, computation."""
    whole = sum(view.host_parts.values())
    return view.step_seconds * view.host_parts[REST] / whole if whole else 0.0


def gain_by_overlap(view: CaptureView, seconds: float) -> tuple[float, float]:
    """Return the least and the largest gain if this time overlaps the rest of the step.

    Without a GPU both may need the same cores, so the least gain is zero.
    """
    most = min(seconds, rest_of_step(view, seconds))
    return (most * SHARE_SURELY_HIDDEN if view.has_gpu else 0.0), most


def gain_without_wait(view: CaptureView, seconds: float, calls: float) -> tuple[float, float]:
    """Return the least and the largest gain without waits; the computation on the device remains."""
    most = min(seconds, rest_of_step(view, seconds))
    return min(most, calls * ROUND_TRIP_SECONDS if view.has_gpu else 0.0), most


def _seconds_in_each_step(steps: Steps, events: Iterable[LedgerEvent]) -> list[float]:
    """Return the seconds of the events in each step; overlapping events count once."""
    own = [event for event in events if event.thread == steps.thread]
    intervals = Intervals([event.start for event in own], [event.end for event in own])
    covered = intervals.covered(steps.edges[:-1], steps.edges[1:])
    return [nanoseconds / 1e9 for nanoseconds in covered.tolist()]
