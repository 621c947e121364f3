"""Meters of the milliseconds to the first batch, on host and device."""

from time import perf_counter
from typing import Any

from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.data import make_array
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload

__all__ = ["prepare", "prepare_later", "prepare_on_device"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    """Measure the time to make a loader, start it, and receive its first batch.

    A training process makes its loader once, so there is no warm-up. The time of the first loader in the process
    includes imports. Every sample repeats this time in the column "cold". It is also the first value of the column
    "first".
    """
    cold = dict[str, float]()

    def sample() -> ColumnValues:
        milliseconds = _milliseconds(contender, work)
        cold.setdefault("cold", milliseconds)
        return {"first": milliseconds, **cold}

    return Sampler(lambda: None, sample)


def prepare_later(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    """Measure the time to the first batch as `prepare` does, but after a warm-up.

    In the warm-up, the first loader of the process makes the data, so the samples do not include this.
    """

    def warm_up() -> None:
        _milliseconds(contender, work)

    return Sampler(warm_up, lambda: {"first": _milliseconds(contender, work)})


def prepare_on_device(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    """Measure the time to make a loader, and from `iter()` to its first batch.

    The first loader of a process starts cold: it compiles kernels and fills memory pools. Its time is the column
    "cold". The other columns are the times of later loaders in the same process.
    """
    consumer, cold = load_consumer(work), dict[str, float]()
    make_array(work)  # the result is cached, so that no measurement includes making the data

    def warm_up() -> None:
        made, first = _device_milliseconds(contender, work, consumer)
        cold["cold"] = made + first

    def sample() -> ColumnValues:
        made, first = _device_milliseconds(contender, work, consumer)
        return {"made": made, "first": first, **cold}

    return Sampler(warm_up, sample)


def _milliseconds(contender: ContenderFunction, work: Workload) -> float:
    """Return the milliseconds to make a loader and receive its first batch."""
    start = perf_counter()
    epoch = contender(work)()
    next(iter(epoch))
    milliseconds = (perf_counter() - start) * 1e3
    _close(epoch)
    return milliseconds


def _device_milliseconds(contender: ContenderFunction, work: Workload, consumer: Consumer) -> tuple[float, float]:
    """Return the milliseconds to make a loader, and those from `iter()` to the first batch."""
    start = perf_counter()
    epoch = contender(work)()
    made = perf_counter()
    batches = iter(epoch)
    consumer.take(next(batches))
    consumer.wait()
    arrived = perf_counter()
    consumer.end_epoch()  # the consumer adds up batches; this resets its sum
    consumer.wait()
    _close(batches)
    _close(epoch)
    return (made - start) * 1e3, (arrived - made) * 1e3


def _close(loader: Any) -> None:
    """Call the `close` method of a loader, if it has one."""
    close = getattr(loader, "close", None)
    if close:
        close()
