"""JAX receives: the first element of every row, summed in one compiled call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import first_elements_total

__all__ = ["JaxConsumer", "consumer", "require_gpu"]


def require_gpu() -> None:
    if jax.default_backend() != "gpu":
        raise Skip("JAX sees no GPU")


def consumer(work: Work) -> "JaxConsumer":
    return JaxConsumer()


class JaxConsumer:
    """Keeps a running sum that never leaves the device."""

    def __init__(self) -> None:
        self._add = jax.jit(_add_first_elements)
        self._zero = jnp.zeros((), jnp.uint32)
        self._total = self._zero
        self._epochs: list[Any] = []

    def take(self, batch: Any) -> None:
        self._total = self._add(self._total, batch)

    def end_epoch(self) -> None:
        self._epochs.append(self._total)
        self._total = self._zero

    def wait(self) -> list[int]:
        jax.block_until_ready(self._total)
        totals, self._epochs = [int(total) for total in self._epochs], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return np.asarray(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return first_elements_total(source)


def _add_first_elements(total: Any, batch: Any) -> Any:
    column = batch[(slice(None), *(0 for _ in batch.shape[1:]))]
    return total + jnp.sum(column.astype(jnp.uint32), dtype=jnp.uint32)
