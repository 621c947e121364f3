"""A jitted function prints in every step."""

import jax
import jax.numpy as jnp


@jax.jit
def step(weights):
    jax.debug.print("mean {}", weights.mean())
    return jnp.tanh(weights @ weights) * 0.5


weights = jnp.full((16, 16), 1e-2)
for _ in range(60):
    weights = step(weights)
answer = float(weights.sum())
