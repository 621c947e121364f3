"""The parts of a step on the loop's thread, and the weight of each profiled step in them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.analyse.steps import MAX_LONG_SHARE, PARTS, REST, Steps
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["share_of_steps", "split_each_step", "split_step", "split_typical_step", "step_weights"]


def split_step(steps: Steps, events: Iterable[LedgerEvent]) -> dict[str, float]:
    """Return the seconds of each part of the mean step. The parts add up to the mean step time."""
    return {part: float(seconds.mean()) for part, seconds in split_each_step(steps, events).items()}


def split_each_step(steps: Steps, events: Iterable[LedgerEvent]) -> dict[str, Any]:
    """Return the seconds of each part in each step. The parts of a step add up to its time."""
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
    """Return how much each step counts in the shares of a typical step. The weights add up to 1.

    All steps count equally, so that a few long steps do not decide the shares; with `by_length`, they count by their
    length. Steps with a compilation do not count if they are at most MAX_LONG_SHARE of the steps, for example because
    the first validation compiles a function.
    """
    lengths = np.diff(steps.edges).astype(float)
    compilations = [event for event in events if event.kind == EventKind.COMPILE and event.thread == steps.thread]
    compiling = Intervals([event.start for event in compilations], [event.end for event in compilations])
    compiles = compiling.covered_lengths(steps.edges[:-1], steps.edges[1:]) > 0
    counts = (lengths > 0) & ~(compiles & (compiles.sum() <= MAX_LONG_SHARE * len(steps)))
    weights = np.where(counts, lengths if by_length else 1.0, 0.0)
    return weights / weights.sum() if weights.sum() else np.full(len(steps), 1 / len(steps))


def share_of_steps(steps: Steps, seconds_by_step: Any, weights: Any) -> float:
    """Return the share of a typical step. `seconds_by_step` are at most the seconds of each step."""
    lengths = np.maximum(1, np.diff(steps.edges)) / 1e9
    return float(np.dot(weights, np.asarray(seconds_by_step) / lengths))


def split_typical_step(
    steps: Steps, events: Iterable[LedgerEvent], weights: Any, step_seconds: float
) -> dict[str, float]:
    """Return the seconds of each part of a step that takes `step_seconds`, from the shares in profiled steps."""
    parts = split_each_step(steps, events)
    shares = {part: share_of_steps(steps, seconds, weights) for part, seconds in parts.items()}
    total = sum(shares.values())
    return {part: step_seconds * share / total if total else 0.0 for part, share in shares.items()}
