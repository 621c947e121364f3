"""One call of a compiled function makes 50 steps."""

import jax
import jax.numpy as jnp

batches = jax.random.normal(jax.random.key(0), (500, 64, 32))
weights = jnp.zeros((32, 32))


def step(weights, batch):
    gradient = jax.grad(lambda weights: jnp.mean((batch @ weights - batch) ** 2))(weights)
    return weights - 0.1 * gradient, None


@jax.jit
def many_steps(weights, batches):
    return jax.lax.scan(step, weights, batches)[0]


for fifty in list(batches.reshape(10, 50, 64, 32)):
    weights = many_steps(weights, fifty)
answer = float(jnp.mean(weights))
