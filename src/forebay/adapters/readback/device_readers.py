"""Who brings results back from which device; the driver is imported when the first one does."""

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from forebay.errors import FrameworkError

__all__ = ["DeviceArray", "Readers"]


class Readers:
    """A `DeviceReader` for each device, made when the first result lies there."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._readers: dict[int, Any] = {}

    def at(self, index: int) -> Any:
        if index not in self._readers:
            self._readers[index] = _cuda().DeviceReader(index, self._limit)
        return self._readers[index]

    def close(self) -> None:
        while self._readers:
            self._readers.popitem()[1].close()


def _cuda() -> Any:
    try:
        return import_module("forebay.adapters.readback.cuda")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cuda":
            raise
        raise FrameworkError(
            f"results on a GPU come back through {error.name!r}, which is not installed: pip install 'forebay[cu13]' "
            "(or cu12).",
            name=error.name,
        ) from error


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
