"""Cost of the hand-off in us per batch: a batch for the framework minus a batch for NumPy.

Both run in the same process, epoch by epoch in turn. The meter counts CPU time in addition to elapsed time. A loader
may hand off several batches at once, or in another thread, so the time of a single `next()` would look too short.
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
    numpy_epoch, framework_epoch = contender(numpy_work), contender(work)

    def sample() -> ColumnValues:
        pairs = list(_time_pairs(numpy_epoch, framework_epoch, 2 * settings.seconds))
        microseconds = 1e6 / (len(pairs) * work.batches)
        return {
            "cpu": sum(framework[0] - numpy[0] for numpy, framework in pairs) * microseconds,
            "clock": sum(framework[1] - numpy[1] for numpy, framework in pairs) * microseconds,
        }

    def warm_up() -> None:
        list(_time_pairs(numpy_epoch, framework_epoch, settings.warm_up_seconds))

    return Sampler(warm_up, sample)


def _time_pairs(
    numpy_epoch: StartEpoch, framework_epoch: StartEpoch, seconds: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Run one epoch of each kind in turn until the time is up."""
    deadline = perf_counter() + seconds
    while True:
        yield _epoch_seconds(numpy_epoch), _epoch_seconds(framework_epoch)
        if perf_counter() >= deadline:
            return


def _epoch_seconds(start_epoch: StartEpoch) -> tuple[float, float]:
    """Return the CPU time of all threads, and the elapsed time."""
    cpu, clock = process_time(), perf_counter()
    for _ in start_epoch():
        pass
    return process_time() - cpu, perf_counter() - clock
