"""What events cost a step, and how much of it can be hidden: seconds of the loop's own thread, never twice. Pure."""

from bisect import bisect_right
from collections.abc import Iterable
from statistics import fmean, median

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.steps import REST, Steps
from forebay.doctor.model.events import Event

__all__ = ["cost_of", "rest_of", "unexplained", "won_by_not_waiting", "won_by_overlap"]

ROUND_TRIP_SECONDS = 10e-6  # a few bytes back from a GPU and the wait for them, on the fastest one measured
SHARE_SURELY_HIDDEN = 0.5  # of what could be hidden, where the device computes and the host's cores are free


def cost_of(case: Case, events: Iterable[Event]) -> float:
    """Seconds of a step; what it is of a run is the same share of it.

    Where steps took longer while they were watched, so did the events: then it is their share of a step that counts.
    What happens only now and then is not in the step that is the median: it makes the run longer beside it.
    """
    if not case.steps or not case.step_seconds:
        return 0.0
    watched = max(case.steps.seconds, case.step_seconds)
    each = _each_step(case.steps, events)
    mean = fmean(each)
    beside = mean - min(mean, median(each))
    return case.step_seconds * min(1.0, mean / (watched + beside))


def rest_of(case: Case, seconds: float) -> float:
    """What is left of a step."""
    return max(0.0, case.step_seconds - seconds)


def unexplained(case: Case) -> float:
    """Seconds of a step that no event stands for: Python, launches and, without a GPU, computing."""
    whole = sum(case.parts.values())
    return case.step_seconds * case.parts[REST] / whole if whole else 0.0


def won_by_overlap(case: Case, seconds: float) -> tuple[float, float]:
    """At least and at most, where this time were spent beside the rest of the step: it can hide behind no more.

    Without a GPU both may want the same cores, and then nothing is won.
    """
    most = min(seconds, rest_of(case, seconds))
    return (most * SHARE_SURELY_HIDDEN if case.has_gpu else 0.0), most


def won_by_not_waiting(case: Case, seconds: float, calls: float) -> tuple[float, float]:
    """At least and at most, where nobody waited: the device needs its time all the same, but no longer stands still."""
    most = min(seconds, rest_of(case, seconds))
    return min(most, calls * ROUND_TRIP_SECONDS if case.has_gpu else 0.0), most


def _each_step(steps: Steps, events: Iterable[Event]) -> list[float]:
    """Seconds in every step; where events overlap, the time is counted once."""
    found = [0] * len(steps)
    reached = steps.start
    for start, end in sorted((event.start, event.end) for event in events if event.thread == steps.thread):
        start, end = max(start, reached), min(end, steps.end)
        index = bisect_right(steps.edges, start) - 1
        while start < end:
            edge = min(end, steps.edges[index + 1])
            found[index] += edge - start
            start, index = edge, index + 1
        reached = max(reached, end)
    return [length / 1e9 for length in found]
