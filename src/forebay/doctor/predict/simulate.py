"""The prediction of the step time, from the simulation of a changed timeline."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from forebay.doctor.predict.changes import LAUNCHING_KINDS, Change
from forebay.doctor.predict.timeline import Timeline, least_step_seconds, steady_step_seconds

__all__ = ["MAX_ERROR", "WARM_CACHE_FACTOR", "GAIN_UNCERTAINTY", "Prediction", "predict"]

MAX_ERROR = 0.03  # share of the measured step; a simulation with a larger error is not reliable
# Uncertainty of the effect of a cure, from measurements of cured scripts. The smaller of the next two values applies.
STEP_UNCERTAINTY = 0.1  # share of the predicted step
GAIN_UNCERTAINTY = 0.2  # share of the gain
MIN_GAIN_SHARE = 1e-6  # of the step; a smaller gain is a rounding error of the simulation
MAX_ERROR_SHARE = 0.5  # of the gain; the error of the simulation adds at most this uncertainty to a prediction
# If a cure makes the loop sleep less or copy less pageable memory, the CPU caches stay warm. So the same Python work
# takes less time: at best this share. Eight scripts of tests/doctor/cures were recorded with and without the cure. With
# the cure, the work took two thirds of its time in three scripts (read-backs in JAX, uploads of 32 MiB per step in
# PyTorch), four fifths in one script, and all of it in four scripts. The factor is below the smallest measured share.
WARM_CACHE_FACTOR = 0.55


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted duration of a step."""

    now: float  # measured seconds of the unchanged step
    low: float  # predicted seconds, at best
    high: float  # predicted seconds, at worst
    error: float  # error of the simulation of the unchanged script, as a share of the measured step

    @property
    def is_reliable(self) -> bool:
        return self.error <= MAX_ERROR


def predict(
    timeline: Timeline, changes: Iterable[Change], *, measured: float, error: float | None = None
) -> Prediction:
    """Predict the step time after these changes, applied in order.

    `measured` is the present step time in seconds. `error` is the error of the simulation as a share of `measured`;
    if it is None, a simulation of the unchanged timeline determines it. The range from `low` to `high` includes the
    uncertainty of a cure and the error of the simulation. Three laws hold for every timeline:

    - For a cure that does not shorten the simulated step, `low` and `high` are at least `measured`.
    - `low` is at least `least_step_seconds` of the changed timeline.
    - `high` is at most `measured`, unless the simulated step is longer even at best.
    """
    simulated = steady_step_seconds(timeline)
    model_error = error if error is not None else abs(simulated - measured) / measured if measured else 1.0
    changed = timeline
    for change in changes:
        changed = change(changed)
    factor = measured / simulated if simulated else 0.0
    slow = steady_step_seconds(changed) * factor
    at_best = _with_warm_caches(changed) if _keeps_caches_warm(timeline, changed) else changed
    fast = steady_step_seconds(at_best) * factor
    gain = max(0.0, measured - fast)
    if 0 <= gain <= measured * MIN_GAIN_SHARE and fast <= measured:
        return Prediction(measured, measured, measured, model_error)
    uncertainty = min(slow * STEP_UNCERTAINTY, gain * GAIN_UNCERTAINTY)
    uncertainty += min(slow * model_error, gain * MAX_ERROR_SHARE)
    low = max(fast - uncertainty, least_step_seconds(at_best) * factor)
    return Prediction(measured, low, max(fast, min(measured, slow + uncertainty)), model_error)


def _keeps_caches_warm(before: Timeline, after: Timeline) -> bool:
    """Whether the host sleeps less often, or copies less pageable memory (see WARM_CACHE_FACTOR)."""
    return _count_sleeps(after) < _count_sleeps(before) or _pageable_nbytes(after) < _pageable_nbytes(before)


def _count_sleeps(timeline: Timeline) -> int:
    return sum(action.sleeps and bool(action.awaited_operations) for action in timeline.actions)


def _pageable_nbytes(timeline: Timeline) -> int:
    return sum(operation.nbytes for operation in timeline.operations if operation.is_pageable)


def _with_warm_caches(timeline: Timeline) -> Timeline:
    return timeline.with_parts(
        actions=[
            replace(action, seconds=action.seconds * WARM_CACHE_FACTOR) if action.kind in LAUNCHING_KINDS else action
            for action in timeline.actions
        ]
    )
