"""Calibration of a timeline to the pace of unprofiled steps.

In some profiled steps, only the hooks are active. In the recorded steps, CUPTI also records the device, which slows the
host down. A timeline contains recorded steps. Calibration removes the cost of profiling from the timeline in two
stages:

1. It scales calls, and the work between them, to the time that they took with hooks alone. If the simulated step still
   differs too much from the measured steps, the simulation is not reliable.
2. It scales host time, and copies of pageable memory, until the simulated step equals the unprofiled step. The factor
   of this stage is the pace of the host. It removes the cost of the hooks, and changes of the machine's speed during
   the run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.predict.build_timeline import select_typical_steps
from forebay.doctor.predict.host_time import WAIT_KINDS, WORK, host_intervals
from forebay.doctor.predict.simulate import MAX_ERROR
from forebay.doctor.predict.timeline import DeviceOperation, Timeline, steady_step_seconds

__all__ = ["CalibratedTimeline", "calibrate"]

# Limits for the ratio of the time with hooks alone to the time in recorded steps. Outside of these limits, the two
# times belong to different work.
MIN_RATIO = 0.3  # CUPTI makes calls at most three times as slow
MAX_RATIO = 3.0  # steps with hooks alone come first; in one run, page faults made them 2.5 times as slow
# Limits for the pace, the factor on host time.
MIN_PACE = 0.5  # hooks that count every TensorFlow operation can double a step
MAX_PACE = 1.5  # the machine may have been slower in the unprofiled steps
OPERATION_SECONDS = 15e-6  # host time to launch a PyTorch operation, including its share of the backward pass
PACE_TOLERANCE = 0.002  # share of the step; the search for the pace ends at a smaller error
MAX_TRIES = 12  # of the search for the pace; each try halves the range
MIDDLE_QUANTILES = 0.25, 0.75  # half of all steps take a time between these quantiles
# An iteration of the loop consists of the host's own work and its waits for the device. A short iteration has no waits,
# so it shows the time of the work. The shortest iteration may be an outlier, so this quantile stands for a short one.
SHORT_ITERATION_QUANTILE = 0.1

SiteKey = tuple[str, int]  # kind and line


@dataclass(frozen=True, slots=True)
class CalibratedTimeline:
    """A timeline at the pace of unprofiled steps. Errors are shares of a step."""

    timeline: Timeline
    measured: float  # `CaptureView.step_seconds`: the time of an unprofiled step, if the capture has such steps
    structure_error: float  # of the uncalibrated timeline, compared to the recorded steps
    cost_error: float  # after stage 1, compared to the range of the profiled and unprofiled steps
    pace_error: float  # after stage 2, compared to `measured`

    @property
    def error(self) -> float:
        return max(self.structure_error, self.cost_error, self.pace_error)


def calibrate(view: CaptureView, timeline: Timeline) -> CalibratedTimeline:
    """Return the calibrated timeline of a capture; unchanged without device records."""
    measured = view.step_seconds
    if view.device is None:
        return CalibratedTimeline(
            timeline, measured, 0.0, 0.0, _relative_error(steady_step_seconds(timeline), measured)
        )
    recorded = view.device.bound_seconds or _recorded_seconds(view.device)
    structure_error = _relative_error(steady_step_seconds(timeline), recorded)
    scaled = _with_ratios(timeline, _recording_ratios(view, view.device))
    paced = _with_measured_pace(scaled, measured, _short_iteration_seconds(view))
    return CalibratedTimeline(
        paced,
        measured,
        structure_error,
        _error_outside_measured(steady_step_seconds(scaled), view),
        _relative_error(steady_step_seconds(paced), measured),
    )


def _relative_error(value: float, expected: float) -> float:
    return abs(value - expected) / expected if expected else 1.0


def _error_outside_measured(seconds: float, view: CaptureView) -> float:
    """Return how far `seconds` are outside of the measured range, relative to the step.

    The range contains the middle half of the profiled steps and of the unprofiled steps. Profiled and unprofiled steps
    differ by the cost of the hooks and by changes of the machine's speed.
    """
    assert view.steps is not None
    profiled = np.diff(view.steps.edges) / 1e9
    measured = [
        view.step_seconds,
        *np.quantile(profiled, MIDDLE_QUANTILES),
        *np.quantile(view.unprofiled_seconds or profiled, MIDDLE_QUANTILES),
    ]
    return float(max(0.0, min(measured) - seconds, seconds - max(measured))) / view.step_seconds


def _recorded_seconds(device_view: DeviceView) -> float:
    """Return the mean duration of the typical recorded steps."""
    return fmean(end - start for start, end in select_typical_steps(device_view)) / 1e9


def _recording_ratios(view: CaptureView, device_view: DeviceView) -> dict[SiteKey, float]:
    """Return the ratios of the time with hooks alone to the time in recorded steps.

    Calls have one ratio per kind and line, except calls that wait for the device. The work between calls has one ratio.
    If the device determines the step time and CUPTI recorded no CUDA calls, launches that wait for the device look like
    work. In this case, the ratio of the work is so small that at most OPERATION_SECONDS of work per kernel remain.
    """
    assert view.steps is not None
    profiled = _median_seconds(view.capture.events, device_view.thread, view.steps.edges)
    recorded = _median_seconds(device_view.events, device_view.thread, device_view.edges.tolist())
    ratios = {
        site: min(MAX_RATIO, max(MIN_RATIO, profiled[site] / seconds))
        for site, seconds in recorded.items()
        if site in profiled and seconds > 0 and profiled[site] > 0 and site[0] not in WAIT_KINDS
    }
    work = recorded.get((WORK, -1), 0.0)
    if device_view.bound_seconds and not device_view.lags_behind and not len(device_view.calls) and work:
        ratios[WORK, -1] = min(ratios.get((WORK, -1), 1.0), device_view.kernels_per_step * OPERATION_SECONDS / work)
    return ratios


def _median_seconds(events: Iterable[LedgerEvent], thread: int, edges: Sequence[int]) -> dict[SiteKey, float]:
    """Return the median seconds per step, by kind and line."""
    inside = [event for event in events if event.thread == thread and event.end > edges[0] and event.start < edges[-1]]
    steps: list[dict[SiteKey, float]] = []
    for start, end in pairwise(edges):
        sums: dict[SiteKey, float] = {}
        for interval in host_intervals(inside, thread, start, end):
            site = interval.kind, interval.line
            sums[site] = sums.get(site, 0.0) + interval.seconds
        steps.append(sums)
    sites = {site for sums in steps for site in sums}
    return {site: median(sums.get(site, 0.0) for sums in steps) for site in sites}


def _with_ratios(timeline: Timeline, ratios: dict[SiteKey, float]) -> Timeline:
    """Scale host time, and copies that the CPU makes, by the ratio of their line.

    Launches have the ratio of the work between calls.
    """
    work_ratio = ratios.get((WORK, -1), 1.0)
    actions = [
        replace(action, seconds=action.seconds * (work_ratio if action.kind == "launch" else ratios.get(site, 1.0)))
        for action, site in ((action, (action.kind, action.line)) for action in timeline.actions)
    ]
    operations = [
        replace(each, seconds=each.seconds * _copy_ratio(each, ratios)) if _is_copied_by_call(each) else each
        for each in timeline.operations
    ]
    return timeline.with_parts(actions=actions, operations=operations)


def _copy_ratio(copy: DeviceOperation, ratios: dict[SiteKey, float]) -> float:
    """Return the ratio of the uploads on the copy's line, or else of compiled calls."""
    return next((ratios[kind, copy.line] for kind in ("upload", "run") if (kind, copy.line) in ratios), 1.0)


def _with_measured_pace(timeline: Timeline, measured: float, iteration_seconds: float) -> Timeline:
    """Scale the host to the measured pace.

    `measured` is the step time in seconds, which includes the work of the device. `iteration_seconds` is the time of a
    short unprofiled iteration of the loop. If the device determines the step time, `measured` does not show the pace of
    the host, because the host runs ahead. If `iteration_seconds` is shorter than `measured`, short iterations did not
    wait for the device, so they show the pace. Otherwise the pace is unknown, and the result is the timeline itself.
    """
    if not (_relative_error(steady_step_seconds(timeline), measured) <= MAX_ERROR and _is_device_bound(timeline)):
        return _with_pace(timeline, _find_pace(timeline, measured))
    if not 0 < iteration_seconds < measured * (1 - MAX_ERROR):
        return timeline
    return _with_pace(timeline, _find_pace(_with_instant_device(timeline), iteration_seconds))


def _short_iteration_seconds(view: CaptureView) -> float:
    """Return the seconds of a short unprofiled iteration; 0.0 if none was timed."""
    return float(np.quantile(view.unprofiled_seconds, SHORT_ITERATION_QUANTILE)) if view.unprofiled_seconds else 0.0


def _find_pace(timeline: Timeline, expected: float) -> float:
    """Return the pace, within its limits, at which a step takes about `expected` seconds."""
    low, high, pace = MIN_PACE, MAX_PACE, 1.0
    for _ in range(MAX_TRIES):
        seconds = steady_step_seconds(_with_pace(timeline, pace))
        if _relative_error(seconds, expected) <= PACE_TOLERANCE:
            break
        low, high = (low, pace) if seconds > expected else (pace, high)
        pace = (low + high) / 2
    return pace


def _with_instant_device(timeline: Timeline) -> Timeline:
    """Return the timeline with a device that takes no time."""
    return timeline.with_parts(
        operations=[replace(each, seconds=0.0, gap_seconds=0.0, latency_seconds=0.0) for each in timeline.operations]
    )


def _is_device_bound(timeline: Timeline) -> bool:
    """Whether the device determines the step time: a faster host would hardly shorten it."""
    fastest = steady_step_seconds(_with_pace(timeline, MIN_PACE))
    return fastest > steady_step_seconds(timeline) * (1 - MAX_ERROR)


def _with_pace(timeline: Timeline, pace: float) -> Timeline:
    """Multiply host time, and the time of copies of pageable memory, by `pace`."""
    actions = [replace(action, seconds=action.seconds * pace) for action in timeline.actions]
    operations = [
        replace(each, seconds=each.seconds * pace) if each.is_pageable else each for each in timeline.operations
    ]
    return timeline.with_parts(actions=actions, operations=operations)


def _is_copied_by_call(operation: DeviceOperation) -> bool:
    """Whether this is a copy of pageable memory, whose bytes the calling CPU thread copies."""
    return operation.is_pageable and operation.engine != "compute"
