"""Meter of the GB/s that arrive on the device, and of the busy host cores."""

from forebay.measure.bench.consumers import load_consumer
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    consumer = load_consumer(work)
    delivery = Delivery(contender(work), consumer, work)

    def warm_up() -> None:
        delivery.take_first()
        delivery.run(settings.warm_up_seconds)

    def sample() -> ColumnValues:
        delivered = delivery.measure(settings.seconds)
        return {"speed": delivered.gigabytes_per_second, "cpu": delivered.cores}

    return Sampler(warm_up, sample)
