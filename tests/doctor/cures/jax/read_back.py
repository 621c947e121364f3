"""The loop waits for the loss of every step before NumPy draws the next batch."""

import jax
import jax.numpy as jnp
import numpy as np
from stopwatch import Stopwatch

gpu = jax.default_backend() == "gpu"
steps, rows, batch_rows, width = (1000, 200_000, 4096, 2048) if gpu else (60, 20_000, 128, 256)

generator = np.random.default_rng(0)
images = jax.random.normal(jax.random.key(1), (rows, width))
keys = jax.random.split(jax.random.key(0), 8)
weights = [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys]


def forward(weights, batch):
    for weight in weights:
        batch = jax.nn.relu(batch @ weight)
    return jnp.square(batch - 1).mean()


@jax.jit
def train(weights, images, drawn):
    loss, gradients = jax.value_and_grad(forward)(weights, images[drawn])
    return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)], loss


losses = []
stopwatch = Stopwatch(lambda: jax.block_until_ready(weights))
for _ in range(steps):
    drawn = generator.permutation(rows)[:batch_rows].astype("int32")
    weights, loss = train(weights, images, drawn)
    losses.append(float(loss))
    stopwatch.lap()
stopwatch.print_step_time()
