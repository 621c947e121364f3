"""Meter of a training step with a loader and on a resident batch.

A resident batch stays on the device. The meter chooses the number of matrix products in a step so that the step takes a
little longer than the copy of a batch. This is the shortest step behind which a loader can hide its copies.
"""

from collections.abc import Callable
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload
from forebay.measure.bench.steps import DeviceStep, load_step

__all__ = ["calibrate_products", "prepare"]

STEPS = 150  # on the resident batch, before the steps with a loader and again after them
COPIES = 50  # copies in one trial of the copy speed
COPY_TRIALS = 5  # the fastest trial counts; other load on the host can only slow a trial
MIN_RATIO, AIM_RATIO, MAX_RATIO = 1.0, 1.1, 1.2  # time of a step, divided by the time of a copy
CALIBRATION_ATTEMPTS = 8  # attempts to find a number of products with a ratio between MIN_RATIO and MAX_RATIO
FEW_PRODUCTS, MANY_PRODUCTS = 4, 12  # two lengths of a step, from which the time per product follows


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    consumer = StepConsumer(load_consumer(work), load_step(str(work.options["to"])))
    delivery = Delivery(contender(work), consumer, work)
    resident: list[Any] = []
    copy_seconds: list[float] = []

    def warm_up() -> None:
        resident.append(delivery.take_first())
        copy_seconds.append(_measure_copy_seconds(delivery.batch_nbytes))
        consumer.products = calibrate_products(
            lambda products: _measure_step_seconds(consumer, resident[0], products), copy_seconds[0]
        )
        delivery.run(settings.warm_up_seconds)

    def sample() -> ColumnValues:
        seconds_before = consumer.seconds_per_step(resident[0])
        delivered = delivery.measure(settings.seconds)
        resident_seconds = (seconds_before + consumer.seconds_per_step(resident[0])) / 2
        fed_seconds = delivered.seconds / delivered.batches
        return {
            "fed": fed_seconds * 1e3,
            "alone": resident_seconds * 1e3,
            "slowed": fed_seconds / resident_seconds,
            "compute": resident_seconds / copy_seconds[0],
        }

    return Sampler(warm_up, sample)


def calibrate_products(step_seconds: Callable[[int], float], copy_seconds: float) -> int:
    """Return how many products make a step a little longer than the copy.

    `step_seconds` measures a step with a given number of products. If no attempt is within the limits, return the last
    guess.
    """
    short_seconds, long_seconds = step_seconds(FEW_PRODUCTS), step_seconds(MANY_PRODUCTS)
    product_seconds = max((long_seconds - short_seconds) / (MANY_PRODUCTS - FEW_PRODUCTS), 1e-7)
    fixed_seconds = short_seconds - FEW_PRODUCTS * product_seconds
    products = max(1, ceil((AIM_RATIO * copy_seconds - fixed_seconds) / product_seconds))
    for _ in range(CALIBRATION_ATTEMPTS):
        ratio = step_seconds(products) / copy_seconds
        if MIN_RATIO <= ratio <= MAX_RATIO:
            break
        products = max(1, round(products * AIM_RATIO / ratio))
    return products


class StepConsumer:
    """A consumer that runs a training step on each batch.

    It computes no sums, because the step itself reads the batch.
    """

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

    def seconds_per_step(self, batch: Any) -> float:
        """Return the mean time of a step on this batch."""
        self.take(batch)
        self.wait()
        start = perf_counter()
        for _ in range(STEPS):
            self.take(batch)
        self.wait()
        return (perf_counter() - start) / STEPS


def _measure_step_seconds(consumer: StepConsumer, batch: Any, products: int) -> float:
    consumer.products = products
    return consumer.seconds_per_step(batch)


def _measure_copy_seconds(nbytes: int) -> float:
    # Imported here because it needs cuda-bindings, which `calibrate_products` does not need.
    from forebay.measure.bench.dma_peak import DmaCopies

    with DmaCopies(np.zeros(4 * nbytes, np.uint8)) as copies:
        return min(copies.seconds_per_block(nbytes, COPIES) for _ in range(COPY_TRIALS))
