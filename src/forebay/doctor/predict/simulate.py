"""Predictions: a timeline run as it was and as it would be. Refused where the first misses what was measured. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from forebay.doctor.predict.cures import Change
from forebay.doctor.predict.timeline import Timeline, run

__all__ = ["MOST_ERROR", "Prediction", "predict"]

MOST_ERROR = 0.03  # of the measured step: a model that misses what was seen says nothing about what was not
UNCERTAINTY = 0.05  # of what is won, beside the model's own error


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a step would take."""

    now: float  # measured, seconds
    low: float  # predicted, at best
    high: float  # and at worst
    error: float  # of the model on the script as it is, as a share

    @property
    def believed(self) -> bool:
        return self.error <= MOST_ERROR


def predict(timeline: Timeline, changes: Iterable[Change], *, measured: float) -> Prediction:
    """The step with these changes; its interval holds the model's own error and what is uncertain of any cure."""
    simulated = _step(timeline)
    error = abs(simulated - measured) / measured if measured else 1.0
    changed = timeline
    for change in changes:
        changed = change(changed)
    after = _step(changed) / simulated * measured if simulated else measured
    won = max(0.0, measured - after)
    spread = won * UNCERTAINTY + after * min(error, MOST_ERROR)
    return Prediction(measured, max(0.0, after - spread), min(measured, after + spread), error)


def _step(timeline: Timeline) -> float:
    steps = run(timeline)
    return median(steps) if steps else 0.0
