"""GB/s that arrive while the device computes on another stream, and how much that slows the computation.

The consumer's streams have a high priority and the stream of the products has a low one. Otherwise the consumer's tiny
sums would wait for the products. Even so, each sum waits until a block of a product ends, about as long as the copy of
a batch takes. With a single stream, this wait would limit every loader, so the consumer uses several streams in turn.
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

STREAMS = 4  # 1 stream: 41 GB/s, 4 streams: 49 GB/s, 8 streams: 13 GB/s, because the device alternates between them


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
        alone = products.seconds_alone(settings.seconds)
        products.clear_times()
        delivered = delivery.measure(settings.seconds)
        products.stop()
        slowed = products.seconds_per_product()
        alone = (alone + products.seconds_alone(settings.seconds)) / 2
        return {"speed": delivered.gigabytes_per_second, "slowed": slowed / alone}

    return Sampler(warm_up, sample)


class BusyConsumer:
    """A consumer that also keeps the queue of products filled."""

    def __init__(self, consumer: Consumer, products: BackgroundProducts) -> None:
        self._consumer, self._products = consumer, products
        self._streams = [torch.cuda.Stream(priority=-1) for _ in range(STREAMS)]
        self._next_stream = cycle(self._streams)
        torch.cuda.set_stream(next(self._next_stream))

    def take(self, batch: Any) -> None:
        self._consumer.take(batch)
        # A loader that copies batches on the current stream changes streams too.
        torch.cuda.set_stream(next(self._next_stream))
        self._products.refill_queue()

    def end_epoch(self) -> None:
        current = torch.cuda.current_stream()
        for stream in self._streams:
            current.wait_stream(stream)
        self._consumer.end_epoch()
        for stream in self._streams:
            stream.wait_stream(current)

    def wait(self) -> list[int]:
        """Wait for the sums, but not for the queued products, which do not depend on batches."""
        for stream in self._streams:
            stream.synchronize()
        return self._consumer.wait()

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return self._consumer.download(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return self._consumer.expected_total(source)
