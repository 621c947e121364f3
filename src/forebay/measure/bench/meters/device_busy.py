"""Gigabytes a second that arrive while the device computes on another stream, and how much that is slowed.

The consumer's streams are urgent and the products' is not, or the consumer's tiny sums would wait behind them. They
are several, used in turn: even so each sum waits until some block of a product ends, about as long as a batch takes to
cross, and one stream would make that the limit of any loader.
"""

from itertools import cycle
from typing import Any

import numpy as np
import torch

from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work
from forebay.measure.bench.steps.products import Products

__all__ = ["prepare"]

STREAMS = 4  # with one 41 GB/s arrive, with four 49, with eight 13: between many the device takes turns


class BusyConsumer:
    """A consumer that sees to it that the device never runs out of products."""

    def __init__(self, consumer: Consumer, products: Products) -> None:
        self._consumer, self._products = consumer, products
        self._streams = [torch.cuda.Stream(priority=-1) for _ in range(STREAMS)]
        self._turn = cycle(self._streams)
        torch.cuda.set_stream(next(self._turn))

    def take(self, batch: Any) -> None:
        self._consumer.take(batch)
        torch.cuda.set_stream(next(self._turn))  # whoever sends batches on the current stream does so there too
        self._products.top_up()

    def end_epoch(self) -> None:
        current = torch.cuda.current_stream()
        for stream in self._streams:
            current.wait_stream(stream)
        self._consumer.end_epoch()
        for stream in self._streams:
            stream.wait_stream(current)

    def wait(self) -> list[int]:
        """Not for the products, which are ahead: they have nothing to do with batches."""
        for stream in self._streams:
            stream.synchronize()
        return self._consumer.wait()

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return self._consumer.download(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return self._consumer.expected_total(source)


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    consumer = load_consumer(work)
    start = contender.epochs(work)
    products = Products()
    delivery = Delivery(start, BusyConsumer(consumer, products), work)

    def warm_up() -> None:
        delivery.first()
        delivery.run(pace.warm_up_seconds)
        products.stop()

    def sample() -> Sample:
        alone = products.seconds_alone(pace.seconds)
        products.forget()
        stretch = delivery.measure(pace.seconds)
        products.stop()
        slowed = products.seconds_each()
        alone = (alone + products.seconds_alone(pace.seconds)) / 2
        return {"speed": stretch.gigabytes_per_second, "slowed": slowed / alone}

    return Gauge(warm_up, sample)
