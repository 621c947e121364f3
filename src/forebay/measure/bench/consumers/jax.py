"""JAX consumer: sums the first element of every row in one compiled call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import sum_first_elements

__all__ = ["JaxConsumer", "make_consumer", "require_gpu"]


def require_gpu() -> None:
    if jax.default_backend() != "gpu":
        raise Skip("JAX sees no GPU")


def make_consumer(work: Workload) -> "JaxConsumer":
    return JaxConsumer()


class JaxConsumer:
    """Keeps the sum of the current epoch on the device."""

    def __init__(self) -> None:
        self._add = jax.jit(_add_first_elements)
        self._zero = jnp.zeros((), jnp.uint32)
        self._total = self._zero
        self._epoch_totals: list[Any] = []

    def take(self, batch: Any) -> None:
        self._total = self._add(self._total, batch)

    def end_epoch(self) -> None:
        self._epoch_totals.append(self._total)
        self._total = self._zero

    def wait(self) -> list[int]:
        jax.block_until_ready(self._total)
        totals, self._epoch_totals = [int(total) for total in self._epoch_totals], []
        return totals

    def download(self, batch: Any) -> np.ndarray[Any, Any]:
        return np.asarray(batch)

    def expected_total(self, source: np.ndarray[Any, Any]) -> int:
        return sum_first_elements(source)


def _add_first_elements(total: Any, batch: Any) -> Any:
    column = batch[(slice(None), *(0 for _ in batch.shape[1:]))]
    return total + jnp.sum(column.astype(jnp.uint32), dtype=jnp.uint32)
