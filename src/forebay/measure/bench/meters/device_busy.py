"""Meter of a loader's GB/s while the device computes matrix products.

The meter also measures how much the copies slow the products. To prove that a batch arrived, the consumer sums some of
its elements on the device. The sums run on high-priority streams and the products on a low-priority stream, so that a
sum does not wait for all queued products. A sum still waits until a thread block of a product ends, which takes about
as long as the copy of a batch. With one stream, this wait would limit every loader. Therefore the consumer alternates
between several streams.
"""

from itertools import cycle
from typing import Any

import numpy as np
import torch

from forebay.measure.bench.consumers import Consumer, load_consumer
from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload
from forebay.measure.bench.steps.torch import BackgroundProducts

__all__ = ["prepare"]

# Measured: 41 GB/s with 1 stream, 49 GB/s with 4, and 13 GB/s with 8, because the device then switches between streams.
STREAMS = 4


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    consumer = load_consumer(work)
    start_epoch = contender(work)
    products = BackgroundProducts()
    delivery = Delivery(start_epoch, BusyConsumer(consumer, products), work)

    def warm_up() -> None:
        delivery.take_first()
        delivery.run(settings.warm_up_seconds)
        products.stop()

    def sample() -> ColumnValues:
        # Also time the products without a loader, before and after the delivery. The mean of these two times cancels a
        # steady drift of the GPU clock.
        seconds_before = products.measure_without_loader(settings.seconds)
        products.clear_times()
        delivered = delivery.measure(settings.seconds)
        products.stop()
        during_delivery = products.seconds_per_product()
        without_loader = (seconds_before + products.measure_without_loader(settings.seconds)) / 2
        return {"speed": delivered.gigabytes_per_second, "slowed": during_delivery / without_loader}

    return Sampler(warm_up, sample)


class BusyConsumer:
    """A consumer that calls another consumer, then changes the stream and queues matrix products."""

    def __init__(self, consumer: Consumer, products: BackgroundProducts) -> None:
        self._consumer, self._products = consumer, products
        self._streams = [torch.cuda.Stream(priority=-1) for _ in range(STREAMS)]
        self._next_stream = cycle(self._streams)
        torch.cuda.set_stream(next(self._next_stream))

    def take(self, batch: Any) -> None:
        self._consumer.take(batch)
        # This also changes the stream of a loader that copies its batches on the current stream.
        torch.cuda.set_stream(next(self._next_stream))
        self._products.refill_queue()

    def end_epoch(self) -> None:
        """End the epoch on the current stream.

        This stream waits for the sums of all streams, and the next sums of all streams wait for this stream.
        """
        current = torch.cuda.current_stream()
        for stream in self._streams:
            current.wait_stream(stream)
        self._consumer.end_epoch()
        for stream in self._streams:
            stream.wait_stream(current)

    def wait(self) -> list[int]:
        """Wait for the sums, but not for the queued products."""
        for stream in self._streams:
            stream.synchronize()
        return self._consumer.wait()

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return self._consumer.download(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return self._consumer.expected_total(source)
