"""Meter of the rows and GB/s that arrive on the device, and of busy cores."""

from collections.abc import Iterator
from typing import Any

from forebay.measure.bench.consumers import load_consumer
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    consumer = load_consumer(work)
    start_epoch = contender(work)
    if leaf := work.options.get("leaf"):
        start_epoch = _with_leaf(start_epoch, leaf)
    delivery = Delivery(start_epoch, consumer, work)

    def warm_up() -> None:
        delivery.take_first()
        delivery.run(settings.warm_up_seconds)

    def sample() -> ColumnValues:
        delivered = delivery.measure(settings.seconds)
        rows_per_second = delivered.batches * work.batch / delivered.seconds
        return {"speed": delivered.gigabytes_per_second, "rows": rows_per_second, "cpu": delivered.cores}

    return Sampler(warm_up, sample)


def _with_leaf(start_epoch: StartEpoch, leaf: str) -> StartEpoch:
    """Return epochs whose batches are one leaf of the loader's batches."""

    def epoch() -> Iterator[Any]:
        for batch in start_epoch():
            yield batch[leaf]

    return epoch
