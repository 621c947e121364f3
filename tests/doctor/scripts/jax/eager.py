"""Python runs the gradient and the update of a small network operation by operation."""

import jax
import jax.numpy as jnp

keys = jax.random.split(jax.random.key(0), 6)
layers = [jax.random.normal(key, (32, 32)) / 6 for key in keys]
images = jax.random.normal(jax.random.key(1), (16, 32))


def loss_of(layers, images):
    for layer in layers:
        images = jnp.tanh(images @ layer)
    return jnp.mean((images - 1) ** 2)


def step(layers, images):
    gradients = jax.grad(loss_of)(layers, images)
    return [layer - 0.1 * gradient for layer, gradient in zip(layers, gradients, strict=True)]


for _ in range(30):
    layers = step(layers, images)
answer = float(loss_of(layers, images))
