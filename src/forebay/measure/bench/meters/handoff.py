"""Meter of the hand-off: an epoch for the framework minus an epoch for NumPy.

The results are in microseconds per batch. Both kinds of epoch run in turn in the same process. The meter measures the
CPU time of all threads and the elapsed time of whole epochs. The time of a single `next()` would miss work, because a
loader may hand off several batches at once or in another thread.
"""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, process_time

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    numpy_work = replace(work, options={**work.options, "to": "numpy"})
    start_numpy, start_framework = contender(numpy_work), contender(work)

    def sample() -> ColumnValues:
        pairs = list(_time_pairs(start_numpy, start_framework, 2 * settings.seconds))
        to_microseconds_per_batch = 1e6 / (len(pairs) * work.batches)
        return {
            "cpu": sum(framework[0] - numpy[0] for numpy, framework in pairs) * to_microseconds_per_batch,
            "clock": sum(framework[1] - numpy[1] for numpy, framework in pairs) * to_microseconds_per_batch,
        }

    def warm_up() -> None:
        list(_time_pairs(start_numpy, start_framework, settings.warm_up_seconds))

    return Sampler(warm_up, sample)


def _time_pairs(
    start_numpy: StartEpoch, start_framework: StartEpoch, seconds: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield the times of an epoch for NumPy and one for the framework, repeatedly."""
    deadline = perf_counter() + seconds
    while True:
        yield _epoch_seconds(start_numpy), _epoch_seconds(start_framework)
        if perf_counter() >= deadline:
            return


def _epoch_seconds(start_epoch: StartEpoch) -> tuple[float, float]:
    """Run an epoch, and return the CPU time of all threads and the elapsed time."""
    cpu, clock = process_time(), perf_counter()
    for _ in start_epoch():
        pass
    return process_time() - cpu, perf_counter() - clock
