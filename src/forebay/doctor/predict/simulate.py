"""Predictions: a timeline run as it was and as it would be. Refused where the first misses what was measured. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from forebay.doctor.predict.changes import LAUNCHING_KINDS, Change
from forebay.doctor.predict.timeline import Timeline, steady_step_seconds

__all__ = ["LARGEST_ERROR", "WARM_CACHE_FACTOR", "UNCERTAIN_GAIN", "Prediction", "predict"]

LARGEST_ERROR = 0.03  # of the measured step: a model that misses what was seen says nothing about what was not
# Beside the model's own error, as cured scripts have shown: of what a step then takes, but no more of what is won.
UNCERTAIN_STEP, UNCERTAIN_GAIN = 0.1, 0.2
# Where a loop neither sleeps for the device nor copies much by itself, its caches stay warm: then the same work of
# Python's took between this share of its time and all of it. Of eight pairs of recorded twins it took two thirds in
# three (JAX that read back, PyTorch that uploaded 32 MiB every step), four fifths in one, and all of it in the others.
WARM_CACHE_FACTOR = 0.55


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a step would take."""

    now: float  # measured, seconds
    low: float  # predicted, at best
    high: float  # and at worst
    error: float  # of the model on the script as it is, as a share

    @property
    def is_reliable(self) -> bool:
        return self.error <= LARGEST_ERROR


def predict(
    timeline: Timeline, changes: Iterable[Change], *, measured: float, error: float | None = None
) -> Prediction:
    """The step with these changes, one after the other; its interval holds the model's own error, which is known to
    whoever made it, and what is uncertain of any cure."""
    simulated = steady_step_seconds(timeline)
    missed = error if error is not None else abs(simulated - measured) / measured if measured else 1.0
    changed = timeline
    for change in changes:
        changed = change(changed)
    factor = measured / simulated if simulated else 0.0
    slow = steady_step_seconds(changed) * factor
    fast = steady_step_seconds(_with_warm_caches(changed)) * factor if _keeps_caches_warm(timeline, changed) else slow
    spread = min(slow * UNCERTAIN_STEP, max(0.0, measured - slow) * UNCERTAIN_GAIN) + slow * min(missed, LARGEST_ERROR)
    return Prediction(measured, max(0.0, fast - spread), max(fast, min(measured, slow + spread)), missed)


def _keeps_caches_warm(before: Timeline, after: Timeline) -> bool:
    """Whether the host sleeps less often, or copies less by itself."""
    return _count_sleeps(after) < _count_sleeps(before) or _pageable_nbytes(after) < _pageable_nbytes(before)


def _count_sleeps(timeline: Timeline) -> int:
    return sum(action.sleeps and bool(action.awaits) for action in timeline.actions)


def _pageable_nbytes(timeline: Timeline) -> int:
    return sum(operation.nbytes for operation in timeline.operations if operation.pageable)


def _with_warm_caches(timeline: Timeline) -> Timeline:
    return timeline.changed(
        actions=[
            replace(action, seconds=action.seconds * WARM_CACHE_FACTOR) if action.kind in LAUNCHING_KINDS else action
            for action in timeline.actions
        ]
    )
