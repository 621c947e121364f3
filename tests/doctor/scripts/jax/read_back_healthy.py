"""The device sums the losses. The script reads the sum once, after the loop."""

import jax
import jax.numpy as jnp
import numpy as np

images = jax.random.normal(jax.random.key(0), (20_000, 256))
numbers = np.random.default_rng(0)


@jax.jit
def step(weights, images, rows):
    batch = images[rows]
    loss, gradient = jax.value_and_grad(lambda weights: jnp.square(batch @ weights).mean())(weights)
    return weights - 0.01 * gradient, loss


weights = jax.random.normal(jax.random.key(1), (256, 256))
total = jnp.zeros(())
for _ in range(60):
    weights, loss = step(weights, images, numbers.permutation(20_000)[:256])
    total = total + loss
answer = float(total)
