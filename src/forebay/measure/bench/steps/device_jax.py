"""JAX's step on the device: products in full fp32, compiled into one call."""

from typing import Any

import jax
import jax.numpy as jnp

from forebay.measure.bench.steps.device import EDGE

__all__ = ["JaxStep", "step"]


def step() -> "JaxStep":
    return JaxStep()


class JaxStep:
    """Products of the batch's first bytes with weights that keep their scale."""

    def __init__(self) -> None:
        self._multiply = jax.jit(_products, static_argnums=2)
        self._weights = jax.random.normal(jax.random.key(0), (EDGE, EDGE), jnp.float32) / EDGE**0.5
        self._hidden: Any = self._weights

    def run(self, batch: Any, products: int) -> None:
        self._hidden = self._multiply(batch, self._weights, products)

    def wait(self) -> None:
        jax.block_until_ready(self._hidden)


def _products(batch: Any, weights: Any, products: int) -> Any:
    hidden = batch.reshape(-1)[: EDGE * EDGE].reshape(EDGE, EDGE).astype(jnp.float32)
    for _ in range(products):
        hidden = jnp.matmul(hidden, weights, precision=jax.lax.Precision.HIGHEST)
    return hidden
