"""The script makes all batches before the loop and keeps them on the device.

The doctor must not report `made_in_loop` here.
"""

import jax
import jax.numpy as jnp
import numpy as np

steps, rows, width = 200, 256, 512

generator = np.random.default_rng(0)
weights = jax.random.normal(jax.random.key(1), (width, width)) * width**-0.5


def draw():
    return generator.normal(size=(4, rows, width)).mean(axis=0).astype("float32")


@jax.jit
def train(weights, batch):
    return weights - 1e-4 * batch.T @ jnp.tanh(batch @ weights)


batches = [jnp.asarray(draw()) for _ in range(16)]
for step in range(50 * steps):
    weights = train(weights, batches[step % 16])
