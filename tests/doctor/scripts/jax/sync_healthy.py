"""NumPy draws the next batch during the step. The script waits once, after the loop."""

import jax
import jax.numpy as jnp
import numpy as np

numbers = np.random.default_rng(0)


@jax.jit
def step(weights, rows):
    for _ in range(4):
        weights = jnp.tanh(weights @ weights) * 0.5
    return weights + rows.mean() * 1e-9


weights = jnp.full((512, 512), 1e-3)
for _ in range(40):
    rows = np.sort(numbers.permutation(100_000))
    weights = step(weights, rows)
jax.block_until_ready(weights)
answer = float(weights.sum())
