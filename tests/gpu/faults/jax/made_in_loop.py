"""NumPy makes each batch between two steps, while the device is idle.

The doctor must report `made_in_loop` here.
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


for _ in range(steps):
    signals = draw()
    weights = train(weights, jnp.asarray(signals))
