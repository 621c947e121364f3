"""`jax.jit` compiles the training step, which eager.py runs operation by operation."""

import jax
import jax.numpy as jnp
from stopwatch import Stopwatch

gpu = jax.default_backend() == "gpu"
steps, batch_rows, width = (400, 1024, 1024) if gpu else (60, 32, 64)

rows = jax.random.normal(jax.random.key(1), (16, batch_rows, width))
keys = jax.random.split(jax.random.key(0), 8)
weights = [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys]


def forward(weights, batch):
    for weight in weights:
        batch = jax.nn.relu(batch @ weight)
    return jnp.square(batch - 1).mean()


@jax.jit
def train(weights, batch):
    loss, gradients = jax.value_and_grad(forward)(weights, batch)
    return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)], loss


stopwatch = Stopwatch(lambda: jax.block_until_ready(weights))
for step in range(steps):
    weights, loss = train(weights, rows[step % 16])
    stopwatch.lap()
stopwatch.print_step_time()
