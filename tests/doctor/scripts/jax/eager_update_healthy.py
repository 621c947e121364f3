"""A jitted function computes the gradient and the update."""

import jax
import jax.numpy as jnp

weights = jnp.linspace(-1.0, 1.0, 64)
points = jnp.linspace(0.0, 1.0, 64)
velocity = jnp.zeros(64)


@jax.jit
def gradient_of(weights, points):
    return jax.grad(lambda weights: jnp.mean((jnp.tanh(weights * points) - points) ** 2))(weights)


@jax.jit
def update(weights, velocity, points):
    gradient = gradient_of(weights + 0.9 * velocity, points)
    velocity = 0.9 * velocity - 0.01 * gradient
    return weights + velocity, velocity


for _ in range(300):
    weights, velocity = update(weights, velocity, points)
answer = float(weights.sum())
