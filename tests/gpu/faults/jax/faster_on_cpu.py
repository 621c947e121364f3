"""The script fits a linear model to 100 points, too few for a GPU.

The doctor must report `faster_on_cpu` here.
"""

import jax
import jax.numpy as jnp

x = jax.random.normal(jax.random.key(0), (100, 8))
y = x.sum(axis=1)


def loss_of(weights, x, y):
    return jnp.square(x @ weights - y).mean()


@jax.jit
def train(weights, x, y):
    return weights - 0.01 * jax.grad(loss_of)(weights, x, y)


weights = jnp.zeros(8)
for _ in range(10_000):
    weights = train(weights, x, y)
