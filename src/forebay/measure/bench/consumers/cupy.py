"""CuPy consumer: sums the first element of every row on the current stream."""

from typing import Any

import cupy
import numpy as np

from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import sum_first_elements

__all__ = ["CupyConsumer", "make_consumer", "require_gpu"]


def require_gpu() -> None:
    if not cupy.cuda.is_available():
        raise Skip("CuPy sees no GPU")


def make_consumer(work: Workload) -> "CupyConsumer":
    return CupyConsumer()


class CupyConsumer:
    """Keeps the sum of the current epoch on the device."""

    def __init__(self) -> None:
        self._total: Any = None
        self._epoch_totals: list[Any] = []

    def take(self, batch: Any) -> None:
        column = batch.reshape(len(batch), -1)[:, 0]
        batch_sum = column.sum(dtype=np.float64 if column.dtype.kind == "f" else np.int64)
        self._total = batch_sum if self._total is None else self._total + batch_sum

    def end_epoch(self) -> None:
        self._epoch_totals.append(self._total)
        self._total = None

    def wait(self) -> list[int]:
        cupy.cuda.get_current_stream().synchronize()
        totals, self._epoch_totals = [int(total) for total in self._epoch_totals], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.get()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return sum_first_elements(source)
