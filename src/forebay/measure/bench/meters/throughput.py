"""Meter of the rows per second with an idle and with a busy consumer.

An idle consumer only takes batches. A busy consumer also runs a step after every batch; the meter measures how much the
loader slows this step. A sample runs epochs until its time is up, and includes the start of each epoch. If the time
ends in the middle of an epoch, the rows that the consumer has received count.

Two options are for loaders that need much time for a batch. "time_factor" multiplies the length of a sample.
"drained_batches" is the number of batches that the meter takes before the clock starts, because a loader may have
prefetched them between two samples.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import StartEpoch, Workload
from forebay.measure.bench.steps.host import make_host_step

__all__ = ["prepare"]

# Before and after the busy consumer, the meter runs the step without taking batches. Each of these two runs takes this
# share of the busy consumer's time.
ALONE_SHARE = 0.25


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    start_epoch, step = contender(work), make_host_step()
    seconds = settings.seconds * float(work.options.get("time_factor", 1.0))

    def warm_up() -> None:
        _consume(start_epoch, work, settings.warm_up_seconds)
        _seconds_alone(step.run, settings.warm_up_seconds * ALONE_SHARE)

    def sample() -> ColumnValues:
        idle = _consume(start_epoch, work, seconds)
        seconds_before = _seconds_alone(step.run, seconds * ALONE_SHARE)
        busy = _consume(start_epoch, work, seconds, step.run)
        step_seconds_alone = (seconds_before + _seconds_alone(step.run, seconds * ALONE_SHARE)) / 2
        slowed = busy.step_seconds / busy.steps / step_seconds_alone
        return {"idle": idle.rows_per_second, "busy": busy.rows_per_second, "step": slowed}

    return Sampler(warm_up, sample, step.description)


@dataclass(slots=True)
class ConsumerTotals:
    """The rows that one consumer received, and the time of its steps."""

    rows: int = 0
    seconds: float = 0.0
    steps: int = 0
    step_seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def _consume(
    start_epoch: StartEpoch, work: Workload, seconds: float, step: Callable[[], None] | None = None
) -> ConsumerTotals:
    """Take batches for `seconds`, and run the step after each, if there is one."""
    totals, epoch = ConsumerTotals(), iter(start_epoch())
    for _ in islice(epoch, int(work.options.get("drained_batches", 0))):
        pass
    now = start = perf_counter()
    deadline = start + seconds
    while True:
        batches, now = _train(epoch, deadline, step, totals) if step else _drain(epoch, deadline)
        totals.rows += min(batches * work.batch, work.rows)
        if now >= deadline:
            break
        epoch = iter(start_epoch())
    totals.seconds = now - start
    return totals


# `_drain` and `_train` return the number of batches, and the time at which the last batch ended. They read the clock
# before they drop the iterator, because the time to stop an unfinished epoch does not count.


def _drain(epoch: Iterable[Any], deadline: float) -> tuple[int, float]:
    batches = 0
    for _ in epoch:
        batches += 1
        if (now := perf_counter()) >= deadline:
            return batches, now
    return batches, perf_counter()


def _train(
    epoch: Iterable[Any], deadline: float, step: Callable[[], None], totals: ConsumerTotals
) -> tuple[int, float]:
    batches = 0
    for _ in epoch:
        start = perf_counter()
        step()
        now = perf_counter()
        batches += 1
        totals.steps += 1
        totals.step_seconds += now - start
        if now >= deadline:
            return batches, now
    return batches, perf_counter()


def _seconds_alone(step: Callable[[], None], seconds: float) -> float:
    """Run the step for `seconds` without taking batches, and return the mean seconds per step.

    During this time, threads of the loader may still prefetch.
    """
    steps, start = 0, perf_counter()
    while perf_counter() < start + seconds or not steps:
        step()
        steps += 1
    return (perf_counter() - start) / steps
