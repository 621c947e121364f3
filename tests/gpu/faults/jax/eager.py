"""Python computes the gradient operation by operation in every step. Nothing is compiled.

The doctor must report `eager` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, rows, width = (200, 1024, 512) if gpu else (10, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(1), 8)]


def loss_of(layers, batch):
    for layer in layers:
        batch = jnp.tanh(batch @ layer)
    return jnp.square(batch).mean()


for _ in range(steps):
    gradients = jax.grad(loss_of)(layers, batch)
    layers = [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)]
