"""Consumer of the contender `dma_copies`. It reads nothing, because the contender waits for each copy."""

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
    """Takes `DeviceBlock` objects, and does nothing with them on the device."""

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
