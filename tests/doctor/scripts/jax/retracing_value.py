"""The learning rate is a static argument that changes in every step, so JAX recompiles."""

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames="rate")
def step(weights, rate):
    return weights - rate * jnp.tanh(weights)


weights = jnp.ones((64, 64))
for number in range(20):
    weights = step(weights, rate=0.1 / (1 + number))
answer = float(weights.sum())
