"""From `iter()` to the first batch on the device, in ms; before that, what it takes to make the loader.

A process makes its first loader cold: kernels are compiled, pools are filled. That one is a column of its own; what
every later one in the same process takes is the other.
"""

from time import perf_counter
from typing import Any

from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.data import array
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work

__all__ = ["prepare"]


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    consumer, cold = load_consumer(work), dict[str, float]()
    array(work)

    def warm_up() -> None:
        made, first = _milliseconds(contender, work, consumer)
        cold["cold"] = made + first

    def sample() -> Sample:
        made, first = _milliseconds(contender, work, consumer)
        return {"made": made, "first": first, **cold}

    return Gauge(warm_up, sample)


def _milliseconds(contender: ContenderModule, work: Work, consumer: Consumer) -> tuple[float, float]:
    began = perf_counter()
    epoch = contender.epochs(work)()
    made = perf_counter()
    batches = iter(epoch)
    consumer.take(next(batches))
    consumer.wait()
    arrived = perf_counter()
    consumer.end_epoch()  # the next first batch begins anew
    consumer.wait()
    _close(batches)
    _close(epoch)
    return (made - began) * 1e3, (arrived - made) * 1e3


def _close(closing: Any) -> None:
    close = getattr(closing, "close", None)
    if close:
        close()
