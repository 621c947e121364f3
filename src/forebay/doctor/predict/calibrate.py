"""A timeline at the pace of steps that nobody recorded: the host's own time is what recording makes longer. Pure.

What recording costs is taken off first: each line's calls, and the work between them, take what they took while only
calls were watched. Such a timeline owes nothing to how long a step took afterwards, so it can be held against that:
where it misses what was measured, it is not believed. Only then the pace is set: machines drift from one second to
the next, so the host's own time, and what crosses out of ordinary memory, is stretched or shortened until the step
takes what steps took that nobody watched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import Event
from forebay.doctor.predict.build_timeline import typical_steps
from forebay.doctor.predict.host_time import WAITS, WORK, pieces_of
from forebay.doctor.predict.simulate import MOST_ERROR
from forebay.doctor.predict.timeline import Operation, Timeline, steady

__all__ = ["Model", "model_of"]

# Times as long: what differs by more is not the same work. Recording slows calls down threefold at most; what it keeps
# in memory may also spare a loop the fresh pages of its batches, which took 2.5 times as long when nobody recorded.
LEAST, MOST = 0.3, 3.0
PACE_LEAST, PACE_MOST = 0.5, 1.5  # hooks that count every operation of TensorFlow's cost as much as the step
LAUNCH_SECONDS = 15e-6  # that PyTorch takes for an operation, with its part of the gradient
CLOSE = 0.002  # of the step
MOST_TRIES = 12
MIDDLE = 0.25, 0.75  # between which half of all steps lie

Site = tuple[str, int]  # kind and line


@dataclass(frozen=True, slots=True)
class Model:
    """A timeline that can be believed as far as its errors are small."""

    timeline: Timeline
    measured: float  # seconds of a step
    structure_error: float  # of the recorded steps, run again as they were
    cost_error: float  # of steps that nobody recorded, once the cost of recording is taken off
    pace_error: float  # of a step that nobody watched, after all

    @property
    def error(self) -> float:
        return max(self.structure_error, self.cost_error, self.pace_error)


def model_of(case: Case, timeline: Timeline) -> Model:
    """The timeline of a case, at the pace of a step that nobody watched."""
    measured = case.step_seconds
    if case.device is None:
        return Model(timeline, measured, 0.0, 0.0, _apart(steady(timeline), measured))
    recorded = case.device.bound_seconds or _recorded_seconds(case.device)
    structure_error = _apart(steady(timeline), recorded)
    scaled = _scaled(timeline, _ratios(case, case.device))
    paced = _paced(scaled, measured, median(case.untraced) if case.untraced else 0.0)
    return Model(paced, measured, structure_error, _missed(steady(scaled), case), _apart(steady(paced), measured))


def _apart(value: float, wanted: float) -> float:
    return abs(value - wanted) / wanted if wanted else 1.0


def _missed(seconds: float, case: Case) -> float:
    """How far this is from all that was measured of a step: the middle half of those that were watched, and of those
    that nobody watched, which differ by what hooks cost and by how the machine drifts."""
    assert case.steps is not None
    watched = np.diff(case.steps.edges) / 1e9
    known = [case.step_seconds, *np.quantile(watched, MIDDLE), *np.quantile(case.untraced or watched, MIDDLE)]
    return float(max(0.0, min(known) - seconds, seconds - max(known))) / case.step_seconds


def _recorded_seconds(view: DeviceView) -> float:
    return fmean(end - start for start, end in typical_steps(view)) / 1e9


def _ratios(case: Case, view: DeviceView) -> dict[Site, float]:
    """For each line's calls of one kind, and for the loop's own work: watched against recorded.

    A loop that goes at the device's pace mostly stands still in launches, which look like work where calls were not
    recorded: then it is as much work as launches take.
    """
    assert case.steps is not None
    before = _each(case.capture.events, view.thread, case.steps.edges)
    recorded = _each(view.events, view.thread, view.edges.tolist())
    ratios = {
        site: min(MOST, max(LEAST, before[site] / seconds))
        for site, seconds in recorded.items()
        if site in before and seconds > 0 and before[site] > 0 and site[0] not in WAITS
    }
    work = recorded.get((WORK, -1), 0.0)
    if view.bound_seconds and not view.lags and not len(view.calls) and work:
        ratios[WORK, -1] = min(ratios.get((WORK, -1), 1.0), view.kernels_per_step * LAUNCH_SECONDS / work)
    return ratios


def _each(events: Iterable[Event], thread: int, edges: Sequence[int]) -> dict[Site, float]:
    """Seconds of the median step, by kind and line."""
    inside = [event for event in events if event.thread == thread and event.end > edges[0] and event.start < edges[-1]]
    steps: list[dict[Site, float]] = []
    for start, end in pairwise(edges):
        sums: dict[Site, float] = {}
        for piece in pieces_of(inside, thread, start, end):
            sums[piece.kind, piece.line] = sums.get((piece.kind, piece.line), 0.0) + piece.seconds
        steps.append(sums)
    sites = {site for sums in steps for site in sums}
    return {site: median(sums.get(site, 0.0) for sums in steps) for site in sites}


def _scaled(timeline: Timeline, ratios: dict[Site, float]) -> Timeline:
    work = ratios.get((WORK, -1), 1.0)
    actions = [
        replace(action, seconds=action.seconds * (work if action.kind == "launch" else ratios.get(site, 1.0)))
        for action, site in ((action, (action.kind, action.line)) for action in timeline.actions)
    ]
    operations = [
        replace(each, seconds=each.seconds * _copying_ratio(each, ratios)) if _is_copied(each) else each
        for each in timeline.operations
    ]
    return timeline.changed(actions=actions, operations=operations)


def _copying_ratio(copy: Operation, ratios: dict[Site, float]) -> float:
    """That of the uploads of its line; where there are none, of the compiled calls that copy by themselves."""
    return next((ratios[kind, copy.line] for kind in ("upload", "run") if (kind, copy.line) in ratios), 1.0)


def _paced(timeline: Timeline, measured: float, untraced: float) -> Timeline:
    """At the host's pace; where steps take what the device takes, the loop runs ahead of it, and what its own steps
    take tells the host's."""
    if not (_apart(steady(timeline), measured) <= MOST_ERROR and _is_devices(timeline)):
        return _at_pace(timeline, _pace_of(timeline, measured))
    if not 0 < untraced < measured * (1 - MOST_ERROR):
        return timeline
    return _at_pace(timeline, _pace_of(_at_once(timeline), untraced))


def _pace_of(timeline: Timeline, wanted: float) -> float:
    """Halve the interval in which the right pace lies, until a step is close or no pace makes it so."""
    low, high, pace = PACE_LEAST, PACE_MOST, 1.0
    for _ in range(MOST_TRIES):
        takes = steady(_at_pace(timeline, pace))
        if _apart(takes, wanted) <= CLOSE:
            break
        low, high = (low, pace) if takes > wanted else (pace, high)
        pace = (low + high) / 2
    return pace


def _at_once(timeline: Timeline) -> Timeline:
    """With a device that takes no time."""
    return timeline.changed(
        operations=[replace(each, seconds=0.0, turn=0.0, latency=0.0) for each in timeline.operations]
    )


def _is_devices(timeline: Timeline) -> bool:
    """Whether a step takes what the device takes: then the host's pace is not to be told from it."""
    return steady(_at_pace(timeline, PACE_LEAST)) > steady(timeline) * (1 - MOST_ERROR)


def _at_pace(timeline: Timeline, pace: float) -> Timeline:
    actions = [replace(action, seconds=action.seconds * pace) for action in timeline.actions]
    operations = [replace(each, seconds=each.seconds * pace) if each.pageable else each for each in timeline.operations]
    return timeline.changed(actions=actions, operations=operations)


def _is_copied(operation: Operation) -> bool:
    """Whether the call that queues it copies it, for as long as that takes; what others make ready is no call's."""
    return operation.pageable and operation.engine != "compute"
