"""torch receives and reads every byte: for data that is on the device already, where reading is what counts."""

from typing import Any

import numpy as np
import torch

from forebay.bench.consumers.torch import TorchConsumer, require_gpu
from forebay.bench.model import Work

__all__ = ["consumer", "require_gpu"]


def consumer(work: Work) -> "BytesConsumer":
    return BytesConsumer(work.batches)


class BytesConsumer(TorchConsumer):
    """Sums a batch as 64-bit integers, which the device does as fast as its memory gives them.

    Rows must be whole such integers, or their sum would depend on their order.
    """

    def add(self, batch: Any, cell: Any) -> None:
        torch.sum(batch.view(-1).view(torch.int64), 0, out=cell)

    def cell_dtype(self, batch: Any) -> Any:
        return torch.int64

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return int(source.reshape(-1).view(np.int64).sum())  # it wraps around, as on the device
