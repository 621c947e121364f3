"""A jitted gradient, and an update that Python runs operation by operation."""

import jax
import jax.numpy as jnp

weights = jnp.linspace(-1.0, 1.0, 64)
points = jnp.linspace(0.0, 1.0, 64)
velocity = jnp.zeros(64)


@jax.jit
def gradient_of(weights, points):
    return jax.grad(lambda weights: jnp.mean((jnp.tanh(weights * points) - points) ** 2))(weights)


for _ in range(300):
    gradient = gradient_of(weights + 0.9 * velocity, points)
    velocity = 0.9 * velocity - 0.01 * gradient
    weights += velocity
answer = float(weights.sum())
