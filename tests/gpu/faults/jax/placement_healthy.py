"""The script puts the table on the GPU once, before the loop.

The doctor must not report `placement` here.
"""

import jax
import jax.numpy as jnp

here = jax.devices()[0]
gpu = here.platform == "gpu"
steps, rows, width = (500, 2048, 4096) if gpu else (20, 16, 16)

table = jax.device_put(jax.random.normal(jax.random.key(0), (rows, width)), here)
weights = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5


@jax.jit
def step(weights, table):
    hidden = table
    for _ in range(8):
        hidden = jnp.tanh(hidden @ weights)
    return weights - 1e-4 * table.T @ hidden / rows, hidden.mean()


means = []
for number in range(steps):
    weights, mean = step(weights, table)
    if number % 10 == 9:
        means.append(float(mean))
