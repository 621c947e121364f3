"""A table is on the CPU, and every step copies it to the GPU.

The doctor must report `placement` here.
"""

import jax
import jax.numpy as jnp

here, host = jax.devices()[0], jax.devices("cpu")[0]
gpu = here.platform == "gpu"
steps, rows, width = (250, 2048, 4096) if gpu else (20, 16, 16)

table = jax.device_put(jax.random.normal(jax.random.key(0), (rows, width)), host)
weights = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5


@jax.jit
def step(weights, table):
    hidden = table
    for _ in range(8):
        hidden = jnp.tanh(hidden @ weights)
    return weights - 1e-4 * table.T @ hidden / rows, hidden.mean()


means = []
for number in range(steps):
    weights, mean = step(weights, jax.device_put(table, here))
    if number % 10 == 9:
        means.append(float(mean))
