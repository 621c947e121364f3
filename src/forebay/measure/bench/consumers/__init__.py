"""The consumers, which receive the batches on the device; one file per framework.

A consumer reads every batch on the device, because this proves that the batch has arrived. It sums one element of each
row, which takes too little time to affect the measurement. Two consumers differ: `torch_bytes` sums all bytes, as
64-bit words, and `driver` reads nothing, because its contender waits for each copy.
"""

from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from forebay.measure.bench.model import Workload

__all__ = ["Consumer", "load_consumer", "require_gpu"]

CONSUMERS = {  # name in the options of an entry -> module and function
    "torch": ("torch", "make_consumer"),
    "torch_bytes": ("torch", "make_words_consumer"),
    "jax": ("jax", "make_consumer"),
    "tensorflow": ("tensorflow", "make_consumer"),
    "cupy": ("cupy", "make_consumer"),
    "driver": ("driver", "make_consumer"),
}


class Consumer(Protocol):
    """Receives batches on a device and sums an element of each row, epoch by epoch."""

    def take(self, batch: Any) -> None:
        """Queue the sum of a batch on the device, without waiting for it."""
        ...

    def end_epoch(self) -> None:
        """End the sum of the epoch, and begin a new sum.

        The next `wait` returns the ended sum.
        """
        ...

    def wait(self) -> list[int]:
        """Wait for all queued work. Return the sums of epochs ended since the last call."""
        ...

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        """Copy a batch to the host."""
        ...

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        """Return the sum that an epoch over these rows must have."""
        ...


def load_consumer(work: Workload) -> Consumer:
    """Make the consumer that the option "consumer" names, or else the option "to"."""
    name = str(work.options.get("consumer", work.options.get("to")))
    require_gpu(name)
    return cast("Consumer", getattr(_module(name), CONSUMERS[name][1])(work))


def require_gpu(name: str) -> None:
    """Raise `Skip` if the framework of this consumer finds no GPU."""
    _module(name).require_gpu()


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{CONSUMERS[name][0]}")
