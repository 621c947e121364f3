"""torch receives and every byte is read: for data that is on the device already, where reading is what counts."""

import ctypes
from typing import Any

import numpy as np
import torch

from forebay.measure.bench.consumers.torch import TorchConsumer, require_gpu
from forebay.measure.bench.dma_peak import open_device
from forebay.measure.bench.model import Work

__all__ = ["consumer", "require_gpu"]

BLOCKS, THREADS = 132, 512


def consumer(work: Work) -> "BytesConsumer":
    return BytesConsumer(work.batches)


class BytesConsumer(TorchConsumer):
    """Sums a batch as 64-bit integers, by a kernel of our own: as fast as memory gives them, and quickly asked for.

    torch's own sum takes twice as long, on the device and in Python, and would be what is measured.
    Rows must be a multiple of sixteen bytes, or their sum would depend on their order.
    """

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self._kernel = open_device().kernel("sum_words", "sum.cu")
        self._stream = torch.cuda.current_stream().cuda_stream  # asked for once: it takes longer than the launch

    def add(self, batch: Any, cell: Any) -> None:
        job = _Sum(batch.data_ptr(), batch.nbytes // 16, cell.data_ptr())
        self._kernel.launch(self._stream, job, blocks=BLOCKS, threads=THREADS)

    def end_epoch(self) -> None:
        super().end_epoch()
        self._cells.zero_()

    def cell_dtype(self, batch: Any) -> Any:
        return torch.int64

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return int(source.reshape(-1).view(np.int64).sum())  # it wraps around, as on the device


class _Sum(ctypes.Structure):
    """As in sum.cu."""

    _fields_ = (("pairs", ctypes.c_void_p), ("count", ctypes.c_ulonglong), ("total", ctypes.c_void_p))
