"""The script fits a linear model to 65,536 points, enough for a GPU.

The doctor must not report `faster_on_cpu` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, points, features = (500, 65_536, 1024) if gpu else (20, 100, 8)

x = jax.random.normal(jax.random.key(0), (points, features))
y = jnp.roll(x, 1, axis=1)


def loss_of(weights, x, y):
    return jnp.square(x @ weights - y).mean()


@jax.jit
def train(weights, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    return weights - 0.01 * gradient, loss


losses, weights = [], jnp.zeros((features, features))
for step in range(steps):
    weights, loss = train(weights, x, y)
    if step % 10 == 9:
        losses.append(float(loss))
