"""Batches that are there already, for contenders that are a mere call on each of them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["converted"]

ALIGNMENT = 64  # what TensorFlow and JAX ask of memory they take without a copy


def converted(work: Work, convert: Callable[[np.ndarray[Any, Any]], Any]) -> StartEpoch:
    """Epochs of one ready batch through this call; asked for "numpy", the same without it."""
    batch = _aligned(work)
    give = (lambda ready: ready) if work.options["to"] == "numpy" else convert

    def epoch() -> Iterable[Any]:
        return (give(batch) for _ in range(work.batches))

    return epoch


def _aligned(work: Work) -> np.ndarray[Any, Any]:
    count = work.batch * int(np.prod(work.shape))
    memory = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count * 4].view(np.float32).reshape(work.batch, *work.shape)
