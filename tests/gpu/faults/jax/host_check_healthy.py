"""The device counts NaN values. The loop reads the count in every tenth step.

The doctor must not report `host_check` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, rows, width = (500, 2048, 4096) if gpu else (20, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
weights = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5


@jax.jit
def train(weights, batch, wrong):
    activations = batch
    for _ in range(8):
        activations = jnp.tanh(activations @ weights)
    return weights - 1e-4 * batch.T @ activations / rows, wrong + jnp.isnan(activations).sum()


wrong = jnp.zeros((), "int32")
for step in range(steps):
    weights, wrong = train(weights, batch, wrong)
    if step % 10 == 9 and int(wrong):
        raise FloatingPointError(f"step {step}")
