"""The loop builds every batch from Python lists and converts it to a JAX array."""

from random import Random

import jax
import jax.numpy as jnp

numbers = Random(0)
rows = [[numbers.random() for _ in range(64)] for _ in range(2000)]


@jax.jit
def step(weights, batch):
    return weights - 1e-3 * (batch @ weights) @ batch


weights = jnp.ones(64)
for number in range(100):
    batch = [rows[(number * 32 + row) % 2000] for row in range(32)]
    weights = step(weights, jnp.array(batch))
answer = float(weights.sum())
