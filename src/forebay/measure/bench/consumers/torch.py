"""torch receives: the first element of every row, summed on the current stream."""

from typing import Any

import numpy as np
import torch

from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import first_elements_total

__all__ = ["TorchConsumer", "consumer", "require_gpu"]


def require_gpu() -> None:
    if not torch.cuda.is_available():
        raise Skip("torch sees no GPU")


def consumer(work: Work) -> "TorchConsumer":
    return TorchConsumer(work.batches)


class TorchConsumer:
    """Each batch's sum goes into a cell of its own: one kernel a batch, no matter what came before."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._cells: Any = None  # made with the first batch: workers may have to be forked before CUDA is used
        self._each: tuple[Any, ...] = ()
        self._place = 0
        self._epochs: list[Any] = []

    def take(self, batch: Any) -> None:
        if self._cells is None:
            self._open(batch)
        self.add(batch, self._each[self._place])
        self._place += 1

    def add(self, batch: Any, cell: Any) -> None:
        torch.sum(batch.flatten(1).select(1, 0), 0, dtype=cell.dtype, out=cell)

    def end_epoch(self) -> None:
        self._epochs.append(self._cells.sum())
        self._place = 0

    def wait(self) -> list[int]:
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        totals, self._epochs = [int(total) for total in self._epochs], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.cpu().numpy()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return first_elements_total(source)

    def cell_dtype(self, batch: Any) -> Any:
        return torch.float64 if batch.dtype.is_floating_point else torch.int64

    def _open(self, batch: Any) -> None:
        self._cells = torch.zeros(self._batches, dtype=self.cell_dtype(batch), device=batch.device)
        self._each = self._cells.unbind()
