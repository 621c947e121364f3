"""The cost of ledger events, in seconds per step of the loop's thread."""

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

    The result is the share of the events in a profiled step, times the unprofiled step time. This assumes that
    profiling lengthens events and steps by the same factor. The share includes events that only a few long steps have
    (see `_share_with_rare_events`). Without device records, the share is at least that of a typical step (see
    `CaptureView.host_parts`).
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
    """Return the share of events in a step, including events that only few steps have.

    Step times are medians, so they do not contain the time of such events. Therefore the divisor is the time of a
    profiled step plus `excess`: the mean time of the events per step minus their median time. If the input comes in
    bursts, step times are means, so `excess` is zero. With device records, `step_seconds` may exceed
    `profiled_seconds`, because the device needs longer than the host. The divisor uses the longer time.
    """
    longest = max(view.profiled_seconds, view.step_seconds) if view.device is not None else view.profiled_seconds
    mean = fmean(seconds_by_step)
    excess = 0.0 if view.input_comes_in_bursts else mean - min(mean, median(seconds_by_step))
    return mean / (longest + excess) if longest + excess else 0.0


def unexplained_seconds(view: CaptureView) -> float:
    """Return the seconds per step that belong to no part of `steps.PARTS`.

    In this time, the host runs Python code, launches operations or, without a GPU, computes.
    """
    total = sum(view.host_parts.values())
    return view.step_seconds * view.host_parts[REST] / total if total else 0.0


def _seconds_in_each_step(steps: Steps, events: Iterable[LedgerEvent]) -> list[float]:
    """Return the seconds of the events in each step; overlapping events count once."""
    loop_events = [event for event in events if event.thread == steps.thread]
    intervals = Intervals([event.start for event in loop_events], [event.end for event in loop_events])
    nanoseconds_by_step = intervals.covered_lengths(steps.edges[:-1], steps.edges[1:])
    return [nanoseconds / 1e9 for nanoseconds in nanoseconds_by_step.tolist()]
