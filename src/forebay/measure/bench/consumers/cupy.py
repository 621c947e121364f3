"""CuPy receives: the first element of every row, summed on the current stream."""

from typing import Any

import cupy
import numpy as np

from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import first_elements_total

__all__ = ["CupyConsumer", "consumer", "require_gpu"]


def require_gpu() -> None:
    if not cupy.cuda.is_available():
        raise Skip("CuPy sees no GPU")


def consumer(work: Work) -> "CupyConsumer":
    return CupyConsumer()


class CupyConsumer:
    """Keeps a running sum that never leaves the device."""

    def __init__(self) -> None:
        self._total: Any = None
        self._epochs: list[Any] = []

    def take(self, batch: Any) -> None:
        column = batch.reshape(len(batch), -1)[:, 0]
        added = column.sum(dtype=np.float64 if column.dtype.kind == "f" else np.int64)
        self._total = added if self._total is None else self._total + added

    def end_epoch(self) -> None:
        self._epochs.append(self._total)
        self._total = None

    def wait(self) -> list[int]:
        cupy.cuda.get_current_stream().synchronize()
        totals, self._epochs = [int(total) for total in self._epochs], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.get()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return first_elements_total(source)
