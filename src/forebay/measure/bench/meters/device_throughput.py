"""Gigabytes a second that arrive on the device, and how many of the host's cores that takes."""

from forebay.measure.bench.consumers import load_consumer
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work

__all__ = ["prepare"]


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    consumer = load_consumer(work)
    delivery = Delivery(contender.epochs(work), consumer, work)

    def warm_up() -> None:
        delivery.first()
        delivery.run(pace.warm_up_seconds)

    def sample() -> Sample:
        stretch = delivery.measure(pace.seconds)
        return {"speed": stretch.gigabytes_per_second, "cpu": stretch.cores}

    return Gauge(warm_up, sample)
