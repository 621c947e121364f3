"""The loop reads all activations back in every step, and NumPy checks them for NaN.

The doctor must report `host_check` here.
"""

import jax
import jax.numpy as jnp
import numpy as np

gpu = jax.default_backend() == "gpu"
steps, rows, width = (250, 2048, 4096) if gpu else (20, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
weights = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5


@jax.jit
def train(weights, batch):
    activations = batch
    for _ in range(8):
        activations = jnp.tanh(activations @ weights)
    return weights - 1e-4 * batch.T @ activations / rows, activations


for step in range(steps):
    weights, activations = train(weights, batch)
    if np.isnan(jax.device_get(activations)).any():
        raise FloatingPointError(f"step {step}")
