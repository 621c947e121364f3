"""`jax.jit` compiles the whole step into one call.

The doctor must not report `eager` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, rows, width = (500, 8192, 2048) if gpu else (10, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(1), 8)]


def loss_of(layers, batch):
    for layer in layers:
        batch = jnp.tanh(batch @ layer)
    return jnp.square(batch).mean()


@jax.jit
def train(layers, batch):
    loss, gradients = jax.value_and_grad(loss_of)(layers, batch)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)], loss


losses = []
for step in range(steps):
    layers, loss = train(layers, batch)
    if step % 10 == 9:
        losses.append(float(loss))
