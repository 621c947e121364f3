"""Consumer of copies by the CUDA driver, which reads nothing.

The contender itself waits for each copy.
"""

from typing import Any

import numpy as np

from forebay.measure.bench.dma_peak import open_device
from forebay.measure.bench.model import Workload

__all__ = ["DriverConsumer", "make_consumer", "require_gpu"]


def require_gpu() -> None:
    open_device()


def make_consumer(work: Workload) -> "DriverConsumer":
    return DriverConsumer()


class DriverConsumer:
    """Takes the blocks of the contender `dma_copies`, which have a method `download`."""

    def take(self, batch: Any) -> None:
        pass

    def end_epoch(self) -> None:
        pass

    def wait(self) -> list[int]:
        return []

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.download()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return 0
