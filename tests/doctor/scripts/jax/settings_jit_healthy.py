"""The script does not disable jit."""

import jax
import jax.numpy as jnp


@jax.jit
def step(weights):
    for _ in range(20):
        weights = jnp.tanh(weights @ weights) * 0.5
    return weights


weights = jnp.full((16, 16), 1e-2)
for _ in range(30):
    weights = step(weights)
answer = float(weights.sum())
