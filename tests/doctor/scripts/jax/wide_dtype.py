"""NumPy creates float64 images, and JAX converts every batch to float32."""

import jax
import jax.numpy as jnp
import numpy as np

images = np.random.default_rng(0).random((1352, 784))


@jax.jit
def step(weights, batch):
    return weights - 1e-9 * (batch @ weights) @ batch


weights = jnp.ones(784)
for number in range(120):
    batch = images[number * 7 :][:512]
    weights = step(weights, batch)
answer = float(weights.sum())
