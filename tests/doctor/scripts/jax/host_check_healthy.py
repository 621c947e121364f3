"""The jitted step counts NaN values. The script reads the count once, after the loop."""

import jax
import jax.numpy as jnp


@jax.jit
def step(weights, batch, wrong):
    activations = jnp.tanh(batch @ weights)
    return weights - 1e-4 * batch.T @ activations, wrong + jnp.isnan(activations).sum()


batch = jax.random.normal(jax.random.key(0), (1024, 256))
weights = jax.random.normal(jax.random.key(1), (256, 1024))
wrong = jnp.zeros((), jnp.int32)
for _ in range(40):
    weights, wrong = step(weights, batch, wrong)
if int(wrong):
    raise FloatingPointError(f"{wrong} values")
answer = float(weights.sum())
