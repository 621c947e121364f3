"""Python calls a compiled step that computes for a few microseconds."""

import jax
import jax.numpy as jnp

batches = jax.random.normal(jax.random.key(0), (500, 64, 32))
weights = jnp.zeros((32, 32))


@jax.jit
def step(weights, batch):
    gradient = jax.grad(lambda weights: jnp.mean((batch @ weights - batch) ** 2))(weights)
    return weights - 0.1 * gradient


for batch in list(batches):
    weights = step(weights, batch)
answer = float(jnp.mean(weights))
