"""A heat diffusion loop that Python runs operation by operation."""

import jax.numpy as jnp

heat = jnp.linspace(0.0, 1.0, 64)
for _ in range(2000):
    left, right = jnp.roll(heat, 1), jnp.roll(heat, -1)
    curvature = left - 2 * heat + right
    heat = heat + 0.1 * curvature
answer = float(heat.sum())
