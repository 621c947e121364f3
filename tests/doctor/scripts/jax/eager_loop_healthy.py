"""A heat diffusion loop with a jitted step."""

import jax
import jax.numpy as jnp


@jax.jit
def spread(heat):
    left, right = jnp.roll(heat, 1), jnp.roll(heat, -1)
    curvature = left - 2 * heat + right
    return heat + 0.1 * curvature


heat = jnp.linspace(0.0, 1.0, 64)
for _ in range(2000):
    heat = spread(heat)
answer = float(heat.sum())
