"""PyTorch consumers, which compute a checksum of each batch on the device.

`TorchConsumer` sums the first element of every row, and `TorchWordsConsumer` sums all 64-bit words. The bench compares
the sum of each epoch with the sum over the source.
"""

import ctypes
from typing import Any

import numpy as np
import torch

from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import sum_first_elements

__all__ = ["TorchConsumer", "TorchWordsConsumer", "make_consumer", "make_words_consumer", "require_gpu"]

BLOCKS, THREADS = 132, 512  # launch size of the sum kernel: one block per multiprocessor of an H200, 512 threads each


def require_gpu() -> None:
    if not torch.cuda.is_available():
        raise Skip("torch sees no GPU")


def make_consumer(work: Workload) -> "TorchConsumer":
    return TorchConsumer(work.batches)


def make_words_consumer(work: Workload) -> "TorchWordsConsumer":
    return TorchWordsConsumer(work.batches)


class TorchConsumer:
    """Sums the first element of every row.

    The kernel of each batch writes its sum to a cell of its own, an element of one tensor. So each batch needs only one
    kernel; a total would need a second kernel to add the sum.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._cells: Any = None  # allocated at the first batch, because loaders must fork workers before CUDA starts
        self._cell_list: tuple[Any, ...] = ()
        self._next_cell = 0
        self._epoch_totals: list[Any] = []

    def take(self, batch: Any) -> None:
        if self._cells is None:
            self._allocate_cells(batch)
        # Epochs of a pipeline that chooses rows may have more batches than cells. Their sums are not checked.
        self.sum_into(batch, self._cell_list[self._next_cell % len(self._cell_list)])
        self._next_cell += 1

    def sum_into(self, batch: Any, cell: Any) -> None:
        """Queue a kernel that writes the sum of the batch to the cell."""
        torch.sum(batch.flatten(1).select(1, 0), 0, dtype=cell.dtype, out=cell)

    def end_epoch(self) -> None:
        self._epoch_totals.append(self._cells.sum())
        self._next_cell = 0

    def wait(self) -> list[int]:
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        totals, self._epoch_totals = [int(total) for total in self._epoch_totals], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = batch.cpu().numpy()
        return rows

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return sum_first_elements(source)

    def cell_dtype(self, batch: Any) -> Any:
        return torch.float64 if batch.dtype.is_floating_point else torch.int64

    def _allocate_cells(self, batch: Any) -> None:
        self._cells = torch.zeros(self._batches, dtype=self.cell_dtype(batch), device=batch.device)
        self._cell_list = self._cells.unbind()


class TorchWordsConsumer(TorchConsumer):
    """Sums all 64-bit words of a batch, for cases with resident rows.

    The kernel in `sum.cu` reads at the speed of device memory. `torch.sum` takes twice as long, on the device and in
    Python, so the bench would measure `torch.sum` instead of the loader. The row size must be a multiple of 16 bytes.
    Otherwise a word could span two rows, or the kernel would skip the last bytes of a batch, and the sum would depend
    on the order of the rows.
    """

    def __init__(self, batches: int) -> None:
        # Imported here because it needs cuda-bindings, which `TorchConsumer` does not need.
        from forebay.measure.bench.dma_peak import open_device

        super().__init__(batches)
        self._kernel = open_device().kernel("sum_words", "sum.cu")
        self._stream = torch.cuda.current_stream().cuda_stream  # read once: reading it takes longer than a launch

    def sum_into(self, batch: Any, cell: Any) -> None:
        job = _SumJob(batch.data_ptr(), batch.nbytes // 16, cell.data_ptr())
        self._kernel.launch(self._stream, job, blocks=BLOCKS, threads=THREADS)

    def end_epoch(self) -> None:
        super().end_epoch()
        self._cells.zero_()  # the kernel adds to a cell instead of overwriting it

    def cell_dtype(self, batch: Any) -> Any:
        return torch.int64

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return int(source.reshape(-1).view(np.int64).sum())  # wraps around on overflow, like the sum on the device


class _SumJob(ctypes.Structure):
    """The argument of the kernel in `sum.cu`.

    A pair is two 64-bit words. `pairs` and `total` are addresses, and `count` is the number of pairs.
    """

    _fields_ = (("pairs", ctypes.c_void_p), ("count", ctypes.c_ulonglong), ("total", ctypes.c_void_p))
