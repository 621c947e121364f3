"""A debugging setting that disables jit was left in the script."""

import jax
import jax.numpy as jnp

jax.config.update("jax_disable_jit", True)


@jax.jit
def step(weights):
    for _ in range(20):
        weights = jnp.tanh(weights @ weights) * 0.5
    return weights


weights = jnp.full((16, 16), 1e-2)
for _ in range(30):
    weights = step(weights)
answer = float(weights.sum())
