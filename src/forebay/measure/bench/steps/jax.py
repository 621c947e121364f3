"""JAX step on the device: matrix products in fp32, in one compiled call."""

from typing import Any

import jax
import jax.numpy as jnp

from forebay.measure.bench.steps import MATRIX_SIZE

__all__ = ["JaxStep", "make_step"]


def make_step() -> "JaxStep":
    return JaxStep()


class JaxStep:
    """Multiplies a matrix, made of a batch's first elements, by random weights.

    The weights have a variance of 1 / MATRIX_SIZE, so repeated products keep their magnitude.
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
        # HIGHEST is full fp32. By default, JAX may use TF32.
        hidden = jnp.matmul(hidden, weights, precision=jax.lax.Precision.HIGHEST)
    return hidden
