"""A jitted function prints in few steps."""

import jax
import jax.numpy as jnp


@jax.jit
def step(weights, number):
    jax.lax.cond(number % 20 == 0, lambda: jax.debug.print("mean {}", weights.mean()), lambda: None)
    return jnp.tanh(weights @ weights) * 0.5


weights = jnp.full((16, 16), 1e-2)
for number in range(60):
    weights = step(weights, number)
answer = float(weights.sum())
