"""The loop reads all activations back in every step, and NumPy checks them for NaN."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(weights, batch):
    activations = jnp.tanh(batch @ weights)
    return weights - 1e-4 * batch.T @ activations, activations


batch = jax.random.normal(jax.random.key(0), (1024, 256))
weights = jax.random.normal(jax.random.key(1), (256, 1024))
for number in range(40):
    weights, activations = step(weights, batch)
    if np.isnan(jax.device_get(activations)).any():
        raise FloatingPointError(f"step {number}")
answer = float(weights.sum())
