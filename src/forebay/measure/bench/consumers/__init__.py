"""Who receives the batches on the device: one framework a file, imported only where it is used.

A consumer touches every batch on the device, cheaply enough not to matter, so that it must have arrived: it adds up
one element of each row (`torch_bytes`: all of them).
"""

from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from forebay.measure.bench.model import Work

__all__ = ["Consumer", "load_consumer", "require_gpu"]


class Consumer(Protocol):
    """What receives batches; `consumer(work)` of a framework's file makes one, or skips where it sees no GPU."""

    def take(self, batch: Any) -> None:
        """Queue the sum of a batch; nothing is waited for."""
        ...

    def end_epoch(self) -> None: ...

    def wait(self) -> list[int]:
        """Wait for all that was queued; the sums of the epochs that have ended since the last time."""
        ...

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        """Bring a batch back."""
        ...

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        """What an epoch of these rows must come to."""
        ...


def load_consumer(work: Work) -> Consumer:
    """The consumer that an entry names, else that of the framework it feeds."""
    name = work.options.get("consumer", work.options.get("to"))
    require_gpu(str(name))
    return cast("Consumer", _module(str(name)).consumer(work))


def require_gpu(framework: str) -> None:
    """Skip where the framework sees no GPU."""
    _module(framework).require_gpu()


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
