"""torch's step on the device: products in fp32, queued one by one."""

from typing import Any

import torch

from forebay.measure.bench.steps.device import EDGE

__all__ = ["TorchStep", "step"]


def step() -> "TorchStep":
    return TorchStep("cuda")


class TorchStep:
    """Products of the batch's first bytes with weights that keep their scale."""

    def __init__(self, device: str) -> None:
        self._weights = torch.randn(EDGE, EDGE, device=device) / EDGE**0.5
        self._hidden: Any = self._weights

    def run(self, batch: Any, products: int) -> None:
        hidden = batch.view(-1)[: EDGE * EDGE].view(EDGE, EDGE).float()
        for _ in range(products):
            hidden = hidden @ self._weights
        self._hidden = hidden

    def wait(self) -> None:
        if self._hidden.is_cuda:
            torch.cuda.synchronize()
