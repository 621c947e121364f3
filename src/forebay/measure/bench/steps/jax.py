"""Training step of the benchmarks in JAX: fp32 matrix products in one compiled call."""

from typing import Any

import jax
import jax.numpy as jnp

from forebay.measure.bench.steps import MATRIX_SIZE

__all__ = ["JaxStep", "make_step"]


def make_step() -> "JaxStep":
    return JaxStep()


class JaxStep:
    """Multiplies the first elements of a batch by random weights, as often as requested.

    The weights are scaled so that repeated products neither grow nor vanish.
    """

    def __init__(self) -> None:
        self._multiply = jax.jit(_multiply, static_argnums=2)
        weights = jax.random.normal(jax.random.key(0), (MATRIX_SIZE, MATRIX_SIZE), jnp.float32)
        self._weights = weights / MATRIX_SIZE**0.5
        self._hidden: Any = self._weights

    def run(self, batch: Any, products: int) -> None:
        self._hidden = self._multiply(batch, self._weights, products)

    def wait(self) -> None:
        jax.block_until_ready(self._hidden)


def _multiply(batch: Any, weights: Any, products: int) -> Any:
    elements = batch.reshape(-1)[: MATRIX_SIZE * MATRIX_SIZE]
    hidden = elements.reshape(MATRIX_SIZE, MATRIX_SIZE).astype(jnp.float32)
    for _ in range(products):
        # HIGHEST is full fp32; the default may be TF32.
        hidden = jnp.matmul(hidden, weights, precision=jax.lax.Precision.HIGHEST)
    return hidden
