"""Calibration of a timeline to the pace of unprofiled steps.

The doctor profiles in two ways: hooks alone, or hooks and a record of the device, which slows the host down.
Calibration has two steps. First, it gives calls, and the work between them, the time that they took with hooks alone.
This timeline does not depend on unprofiled steps, so their step time tests it: if the two differ too much, the model is
not reliable. Second, it sets the pace. The speed of a machine drifts, so it scales host time and copies of pageable
memory until the simulated step equals the unprofiled step.
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
from forebay.doctor.predict.host_time import WAITS, WORK, host_intervals
from forebay.doctor.predict.simulate import LARGEST_ERROR
from forebay.doctor.predict.timeline import DeviceOperation, Timeline, steady_step_seconds

__all__ = ["CalibratedTimeline", "calibrate"]

# Limits for the ratio of the time without a device record to the time with one. A ratio outside them compares different
# work. A record makes calls at most three times as slow. It can also avoid page faults of batches; without a record,
# these batches took 2.5 times as long.
LEAST_RATIO, MOST_RATIO = 0.3, 3.0
LEAST_PACE, MOST_PACE = 0.5, 1.5  # low, because hooks that count every TensorFlow operation can double a step
LAUNCH_SECONDS = 15e-6  # host time per PyTorch operation, including its share of the backward pass
CLOSE_SHARE = 0.002  # of the step; the search for the pace ends at a smaller error
MOST_TRIES = 12
MIDDLE_QUANTILES = 0.25, 0.75  # the middle half of all steps

SiteKey = tuple[str, int]  # kind and line


@dataclass(frozen=True, slots=True)
class CalibratedTimeline:
    """A timeline at the pace of unprofiled steps, with its errors."""

    timeline: Timeline
    measured: float  # seconds per step
    structure_error: float  # of the simulated step, compared to the step with a device record
    cost_error: float  # after the cost of the device record is removed, compared to measured steps
    pace_error: float  # after the pace is set, compared to the measured step

    @property
    def error(self) -> float:
        return max(self.structure_error, self.cost_error, self.pace_error)


def calibrate(view: CaptureView, timeline: Timeline) -> CalibratedTimeline:
    """Calibrate the timeline of a capture."""
    measured = view.step_seconds
    if view.device is None:
        return CalibratedTimeline(
            timeline, measured, 0.0, 0.0, _relative_error(steady_step_seconds(timeline), measured)
        )
    recorded = view.device.bound_seconds or _recorded_seconds(view.device)
    structure_error = _relative_error(steady_step_seconds(timeline), recorded)
    scaled = _with_ratios(timeline, _recording_ratios(view, view.device))
    paced = _with_measured_pace(scaled, measured, median(view.unprofiled_seconds) if view.unprofiled_seconds else 0.0)
    return CalibratedTimeline(
        paced,
        measured,
        structure_error,
        _error_outside_measured(steady_step_seconds(scaled), view),
        _relative_error(steady_step_seconds(paced), measured),
    )


def _relative_error(value: float, wanted: float) -> float:
    return abs(value - wanted) / wanted if wanted else 1.0


def _error_outside_measured(seconds: float, view: CaptureView) -> float:
    """Return the relative distance to the range of measured steps.

    The range holds the middle half of profiled and of unprofiled steps, which differ by the cost of hooks and by drift.
    """
    assert view.steps is not None
    profiled = np.diff(view.steps.edges) / 1e9
    known = [
        view.step_seconds,
        *np.quantile(profiled, MIDDLE_QUANTILES),
        *np.quantile(view.unprofiled_seconds or profiled, MIDDLE_QUANTILES),
    ]
    return float(max(0.0, min(known) - seconds, seconds - max(known))) / view.step_seconds


def _recorded_seconds(device_view: DeviceView) -> float:
    return fmean(end - start for start, end in select_typical_steps(device_view)) / 1e9


def _recording_ratios(view: CaptureView, device_view: DeviceView) -> dict[SiteKey, float]:
    """Return ratios of profiled to recorded time, for calls by kind and line, and for other work.

    If the device limits the loop, launches block most of the time. Without recorded calls, these waits look like host
    work, so this function limits the work to the time that launches take.
    """
    assert view.steps is not None
    before = _median_seconds(view.capture.events, device_view.thread, view.steps.edges)
    recorded = _median_seconds(device_view.events, device_view.thread, device_view.edges.tolist())
    ratios = {
        site: min(MOST_RATIO, max(LEAST_RATIO, before[site] / seconds))
        for site, seconds in recorded.items()
        if site in before and seconds > 0 and before[site] > 0 and site[0] not in WAITS
    }
    work = recorded.get((WORK, -1), 0.0)
    if device_view.bound_seconds and not device_view.lags_behind and not len(device_view.calls) and work:
        ratios[WORK, -1] = min(ratios.get((WORK, -1), 1.0), device_view.kernels_per_step * LAUNCH_SECONDS / work)
    return ratios


def _median_seconds(events: Iterable[LedgerEvent], thread: int, edges: Sequence[int]) -> dict[SiteKey, float]:
    """Return the seconds of the median step, by kind and line."""
    inside = [event for event in events if event.thread == thread and event.end > edges[0] and event.start < edges[-1]]
    steps: list[dict[SiteKey, float]] = []
    for start, end in pairwise(edges):
        sums: dict[SiteKey, float] = {}
        for piece in host_intervals(inside, thread, start, end):
            sums[piece.kind, piece.line] = sums.get((piece.kind, piece.line), 0.0) + piece.seconds
        steps.append(sums)
    sites = {site for sums in steps for site in sums}
    return {site: median(sums.get(site, 0.0) for sums in steps) for site in sites}


def _with_ratios(timeline: Timeline, ratios: dict[SiteKey, float]) -> Timeline:
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


def _copying_ratio(copy: DeviceOperation, ratios: dict[SiteKey, float]) -> float:
    """Return the ratio of the uploads of its line, or else of the compiled calls that copy."""
    return next((ratios[kind, copy.line] for kind in ("upload", "run") if (kind, copy.line) in ratios), 1.0)


def _with_measured_pace(timeline: Timeline, measured: float, untraced: float) -> Timeline:
    """Set the pace of the host.

    If the device limits the step, the host runs ahead of it. Then the time between the loop's own turns, without a wait
    for the device, gives the pace.
    """
    if not (_relative_error(steady_step_seconds(timeline), measured) <= LARGEST_ERROR and _is_device_bound(timeline)):
        return _with_pace(timeline, _find_pace(timeline, measured))
    if not 0 < untraced < measured * (1 - LARGEST_ERROR):
        return timeline
    return _with_pace(timeline, _find_pace(_with_instant_device(timeline), untraced))


def _find_pace(timeline: Timeline, wanted: float) -> float:
    """Find the pace by bisection. Stop when the step is close enough or after a fixed number of tries."""
    low, high, pace = LEAST_PACE, MOST_PACE, 1.0
    for _ in range(MOST_TRIES):
        takes = steady_step_seconds(_with_pace(timeline, pace))
        if _relative_error(takes, wanted) <= CLOSE_SHARE:
            break
        low, high = (low, pace) if takes > wanted else (pace, high)
        pace = (low + high) / 2
    return pace


def _with_instant_device(timeline: Timeline) -> Timeline:
    """Return the timeline with a device that takes no time."""
    return timeline.changed(
        operations=[replace(each, seconds=0.0, gap=0.0, latency=0.0) for each in timeline.operations]
    )


def _is_device_bound(timeline: Timeline) -> bool:
    """Whether the device limits the step. Then the step does not show the pace of the host."""
    return steady_step_seconds(_with_pace(timeline, LEAST_PACE)) > steady_step_seconds(timeline) * (1 - LARGEST_ERROR)


def _with_pace(timeline: Timeline, pace: float) -> Timeline:
    actions = [replace(action, seconds=action.seconds * pace) for action in timeline.actions]
    operations = [replace(each, seconds=each.seconds * pace) if each.pageable else each for each in timeline.operations]
    return timeline.changed(actions=actions, operations=operations)


def _is_copied(operation: DeviceOperation) -> bool:
    """Whether the call itself copies the bytes. Preparation by other threads does not count."""
    return operation.pageable and operation.engine != "compute"
