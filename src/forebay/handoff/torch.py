"""Hand-off to PyTorch: `from_numpy` takes the slot's memory as it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forebay.handoff.base import refuse_dtypes
from forebay.spec import ArraySpec

__all__ = ["TorchHandOff"]


class TorchHandOff:
    """Tensors over the slot; each holds its root."""

    name = "torch"

    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        refuse_dtypes("PyTorch", specs, names, "biufc")

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        return list(map(torch.from_numpy, roots))
