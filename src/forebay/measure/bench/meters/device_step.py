"""A training step fed, over the same step on one batch that stays on the device.

The step's matrix products are counted at run time so that they take a little longer than the copy of a batch: the
tightest case in which a feed can still hide its copies.
"""

from time import perf_counter
from typing import Any

import numpy as np

from forebay.measure.bench.calibrate import calibrate
from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.dma_peak import Link
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work
from forebay.measure.bench.steps.device import DeviceStep, load_step

__all__ = ["prepare"]

STEPS = 150  # on the resident batch, once before and once after the fed ones
COPIES = 50
LOOKS = 5  # at the link, of which the best counts: what a busy host keeps from it would make the steps longer


class StepConsumer:
    """A consumer that trains on what it takes; nothing is added up, since the step reads the batch."""

    def __init__(self, consumer: Consumer, step: DeviceStep) -> None:
        self._consumer, self._step = consumer, step
        self.products = 1

    def take(self, batch: Any) -> None:
        self._step.run(batch, self.products)

    def end_epoch(self) -> None:
        pass

    def wait(self) -> list[int]:
        self._step.wait()
        return []

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return self._consumer.download(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return 0

    def seconds_each(self, batch: Any) -> float:
        """The mean step on this batch."""
        self.take(batch)
        self.wait()
        began = perf_counter()
        for _ in range(STEPS):
            self.take(batch)
        self.wait()
        return (perf_counter() - began) / STEPS


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    consumer = StepConsumer(load_consumer(work), load_step(str(work.options["to"])))
    delivery = Delivery(contender.epochs(work), consumer, work)
    resident: list[Any] = []
    copy_seconds: list[float] = []

    def warm_up() -> None:
        resident.append(delivery.first())
        copy_seconds.append(_copy_seconds(delivery.batch_nbytes))
        consumer.products = calibrate(lambda products: _timed(consumer, resident[0], products), copy_seconds[0])
        delivery.run(pace.warm_up_seconds)

    def sample() -> Sample:
        alone = consumer.seconds_each(resident[0])
        fed = delivery.measure(pace.seconds)
        alone = (alone + consumer.seconds_each(resident[0])) / 2
        each = fed.seconds / fed.batches
        return {"fed": each * 1e3, "alone": alone * 1e3, "slowed": each / alone, "compute": alone / copy_seconds[0]}

    return Gauge(warm_up, sample)


def _timed(consumer: StepConsumer, batch: Any, products: int) -> float:
    consumer.products = products
    return consumer.seconds_each(batch)


def _copy_seconds(nbytes: int) -> float:
    with Link(np.zeros(4 * nbytes, np.uint8)) as link:
        return min(link.seconds_each(nbytes, COPIES) for _ in range(LOOKS))
