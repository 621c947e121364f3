"""The cost of events per step on the loop's thread."""

from collections.abc import Iterable
from statistics import fmean, median

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import REST, Steps
from forebay.doctor.analyse.typical_step import share_of_steps
from forebay.doctor.model.events import LedgerEvent

__all__ = ["ROUND_TRIP_SECONDS", "cost_of", "cost_on_any_thread", "unexplained_seconds"]

ROUND_TRIP_SECONDS = 10e-6  # time to read a few bytes back from the fastest GPU that was measured


def cost_of(view: CaptureView, events: Iterable[LedgerEvent]) -> float:
    """Return the seconds per step that events cost.

    Assume that profiling lengthens events and steps by the same factor. So the result is the share of the events in a
    profiled step, times the unprofiled step time. For events that occur in most steps, it is their share of a typical
    step, as in `CaptureView.host_parts`. Events of a few long steps count too: see `_share_with_rare_events`.
    """
    if not view.steps or not view.step_seconds:
        return 0.0
    seconds_by_step = _seconds_in_each_step(view.steps, events)
    share = _share_with_rare_events(view, seconds_by_step)
    if view.device is None:
        share = max(share, share_of_steps(view.steps, seconds_by_step, view.step_weights))
    return view.step_seconds * min(1.0, share)


def cost_on_any_thread(view: CaptureView, events: Iterable[LedgerEvent]) -> float:
    """Return the cost of events as if they ran on the loop's thread."""
    assert view.steps is not None
    thread = view.steps.thread
    return cost_of(view, [event._replace(thread=thread) for event in events])


def _share_with_rare_events(view: CaptureView, seconds_by_step: list[float]) -> float:
    """Return the share of events in a step, if a few steps are longer because of them.

    The step times are medians, so they do not contain events that occur in a few steps only. Therefore `excess`, the
    mean time of the events per step minus their median time, is added to the profiled step. If the input comes in
    bursts, the step times are means, and nothing is added. With device records, the step may be longer than the
    profiled step of the host, because the device needs longer.
    """
    longest = max(view.profiled_seconds, view.step_seconds) if view.device is not None else view.profiled_seconds
    mean = fmean(seconds_by_step)
    excess = 0.0 if view.input_comes_in_bursts else mean - min(mean, median(seconds_by_step))
    return mean / (longest + excess) if longest + excess else 0.0


def unexplained_seconds(view: CaptureView) -> float:
    """Return the seconds per step that belong to no part of `steps.PARTS`.

    This is time of Python, of launches and, without a GPU, of computation.
    """
    total = sum(view.host_parts.values())
    return view.step_seconds * view.host_parts[REST] / total if total else 0.0


def _seconds_in_each_step(steps: Steps, events: Iterable[LedgerEvent]) -> list[float]:
    """Return the seconds of the events in each step; overlapping events count once."""
    loop_events = [event for event in events if event.thread == steps.thread]
    intervals = Intervals([event.start for event in loop_events], [event.end for event in loop_events])
    nanoseconds_by_step = intervals.covered_lengths(steps.edges[:-1], steps.edges[1:])
    return [nanoseconds / 1e9 for nanoseconds in nanoseconds_by_step.tolist()]
