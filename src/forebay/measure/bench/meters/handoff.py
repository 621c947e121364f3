"""What it costs to make a batch the framework's own array: a batch to the framework less a batch to NumPy, in us.

Both run in one process, epoch by epoch in turn. The processor's time is counted besides the clock's, because a loader
may hand off several batches at once, or in another thread: a single `next()` would then look free.
"""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, process_time

from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["prepare"]


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    numpy_work = replace(work, options={**work.options, "to": "numpy"})
    plain, framework = contender.epochs(numpy_work), contender.epochs(work)

    def sample() -> Sample:
        pairs = list(_pairs(plain, framework, 2 * pace.seconds))
        microseconds = 1e6 / (len(pairs) * work.batches)
        return {
            "cpu": sum(after[0] - before[0] for before, after in pairs) * microseconds,
            "clock": sum(after[1] - before[1] for before, after in pairs) * microseconds,
        }

    def warm_up() -> None:
        list(_pairs(plain, framework, pace.warm_up_seconds))

    return Gauge(warm_up, sample)


def _pairs(
    plain: StartEpoch, framework: StartEpoch, seconds: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """One epoch of each kind, again and again until the time is up."""
    deadline = perf_counter() + seconds
    while True:
        yield _epoch_seconds(plain), _epoch_seconds(framework)
        if perf_counter() >= deadline:
            return


def _epoch_seconds(start: StartEpoch) -> tuple[float, float]:
    """Of the processor, all threads together, and of the clock."""
    cpu, clock = process_time(), perf_counter()
    for _ in start():
        pass
    return process_time() - cpu, perf_counter() - clock
