"""Rows a second with an idle consumer, again with a busy one, and how much the busy one's step was slowed.

A sample runs epochs until its time is up. What an epoch costs to start is part of it; a loader too slow to finish one
is cut off, its rows so far counted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import StartEpoch, Work
from forebay.measure.bench.steps import busy_step

__all__ = ["prepare"]

ALONE_SHARE = 0.25  # of a sample's time, spent on the step without any loader, once before and once after


@dataclass(slots=True)
class Run:
    """What one consumer saw."""

    rows: int = 0
    seconds: float = 0.0
    steps: int = 0
    step_seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    start, step = contender.epochs(work), busy_step()

    def warm_up() -> None:
        _consume(start, work, pace.warm_up_seconds)
        _seconds_alone(step.run, pace.warm_up_seconds * ALONE_SHARE)

    def sample() -> Sample:
        idle = _consume(start, work, pace.seconds)
        alone = _seconds_alone(step.run, pace.seconds * ALONE_SHARE)
        busy = _consume(start, work, pace.seconds, step.run)
        alone = (alone + _seconds_alone(step.run, pace.seconds * ALONE_SHARE)) / 2
        slowed = busy.step_seconds / busy.steps / alone
        return {"idle": idle.rows_per_second, "busy": busy.rows_per_second, "step": slowed}

    return Gauge(warm_up, sample, step.description)


def _consume(start: StartEpoch, work: Work, seconds: float, step: Callable[[], None] | None = None) -> Run:
    run, began = Run(), perf_counter()
    now = began
    while now < began + seconds:
        batches, now = _train(start(), began + seconds, step, run) if step else _drain(start(), began + seconds)
        run.rows += min(batches * work.batch, work.rows)
    run.seconds = now - began
    return run


# Both loops read the clock before their iterator is dropped: taking a cut-off epoch down is nobody's throughput.


def _drain(epoch: Iterable[Any], deadline: float) -> tuple[int, float]:
    batches = 0
    for _ in epoch:
        batches += 1
        if (now := perf_counter()) >= deadline:
            return batches, now
    return batches, perf_counter()


def _train(epoch: Iterable[Any], deadline: float, step: Callable[[], None], run: Run) -> tuple[int, float]:
    batches = 0
    for _ in epoch:
        began = perf_counter()
        step()
        now = perf_counter()
        batches += 1
        run.steps += 1
        run.step_seconds += now - began
        if now >= deadline:
            return batches, now
    return batches, perf_counter()


def _seconds_alone(step: Callable[[], None], seconds: float) -> float:
    """The mean step on nothing but itself; the loader is idle, whatever it keeps running."""
    steps, began = 0, perf_counter()
    while perf_counter() < began + seconds or not steps:
        step()
        steps += 1
    return (perf_counter() - began) / steps
