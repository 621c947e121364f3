"""Where a result lies on a device."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["DeviceArray"]


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A compact array on a device, and what keeps it there."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize
