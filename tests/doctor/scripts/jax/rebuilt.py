"""The loop jits a new function in every step, so JAX compiles it every time."""

import jax
import jax.numpy as jnp

weights = jnp.ones((64, 64))
for _ in range(20):
    step = jax.jit(lambda weights: weights - 0.1 * jnp.tanh(weights))
    weights = step(weights)
answer = float(weights.sum())
