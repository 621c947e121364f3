"""The parts of a typical step on the loop's thread.

A typical step is a mean of the profiled steps. `step_weights` decides how much each profiled step counts in this mean.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import MAX_LONG_SHARE, PARTS, REST, Steps
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["share_of_steps", "split_each_step", "split_step", "split_typical_step", "step_weights"]


def split_step(steps: Steps, events: Iterable[LedgerEvent]) -> dict[str, float]:
    """Return the seconds of each part of the mean step. Their sum is its time."""
    return {part: float(seconds.mean()) for part, seconds in split_each_step(steps, events).items()}


def split_each_step(steps: Steps, events: Iterable[LedgerEvent]) -> dict[str, Any]:
    """Return for each part an array with its seconds in each step.

    The parts of a step add up to its time.
    """
    loop_events = [event for event in events if event.thread == steps.thread]
    counted, counted_lengths = Intervals([], []), np.zeros(len(steps))
    parts: dict[str, Any] = {}
    for part, kinds in PARTS.items():
        part_events = [event for event in loop_events if event.kind in kinds]
        starts, ends = [event.start for event in part_events], [event.end for event in part_events]
        counted = counted.union(
            Intervals(np.clip(starts, steps.start, steps.end), np.clip(ends, steps.start, steps.end))
        )
        lengths = counted.covered_lengths(steps.edges[:-1], steps.edges[1:])
        parts[part] = (lengths - counted_lengths) / 1e9
        counted_lengths = lengths
    parts[REST] = np.maximum(0.0, (np.diff(steps.edges) - counted_lengths) / 1e9)
    return parts


def step_weights(steps: Steps, events: Iterable[LedgerEvent], *, by_length: bool) -> Any:
    """Return the weights of the steps in a typical step. Their sum is 1.

    All steps have the same weight, so that a few long steps do not decide the shares. With `by_length`, weights are in
    proportion to the lengths of the steps. Steps with a compilation get the weight 0 if they are at most MAX_LONG_SHARE
    of the steps: usual steps compile nothing, but for example the first validation does.
    """
    lengths = np.diff(steps.edges).astype(float)
    compilations = [event for event in events if event.kind == EventKind.COMPILE and event.thread == steps.thread]
    compiling = Intervals([event.start for event in compilations], [event.end for event in compilations])
    compiles = compiling.covered_lengths(steps.edges[:-1], steps.edges[1:]) > 0
    counts = (lengths > 0) & ~(compiles & (compiles.sum() <= MAX_LONG_SHARE * len(steps)))
    weights = np.where(counts, lengths if by_length else 1.0, 0.0)
    return weights / weights.sum() if weights.sum() else np.full(len(steps), 1 / len(steps))


def share_of_steps(steps: Steps, seconds_by_step: Any, weights: Any) -> float:
    """Return the share of a typical step that `seconds_by_step` take.

    `seconds_by_step` has the seconds of some work in each step, and `weights` is a result of `step_weights`.
    """
    lengths = np.maximum(1, np.diff(steps.edges)) / 1e9
    return float(np.dot(weights, np.asarray(seconds_by_step) / lengths))


def split_typical_step(
    steps: Steps, events: Iterable[LedgerEvent], weights: Any, step_seconds: float
) -> dict[str, float]:
    """Return the seconds of each part of a typical step that takes `step_seconds`.

    The profiled steps and their `weights` determine the shares of the parts.
    """
    parts = split_each_step(steps, events)
    shares = {part: share_of_steps(steps, seconds, weights) for part, seconds in parts.items()}
    total = sum(shares.values())
    return {part: step_seconds * share / total if total else 0.0 for part, share in shares.items()}
