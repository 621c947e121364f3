"""The array stays on the device, and the loop gathers its batches there."""

import jax
import jax.numpy as jnp
import numpy as np
from stopwatch import Stopwatch

gpu = jax.default_backend() == "gpu"
steps, rows, batch_rows, width = (600, 65_536, 4096, 2048) if gpu else (60, 6000, 128, 256)

generator = np.random.default_rng(0)
images = jax.device_put(generator.random((rows, width), dtype="float32"))
keys = jax.random.split(jax.random.key(0), 3)
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
for _ in range(steps):
    drawn = generator.integers(0, rows, batch_rows)
    batch = jnp.take(images, drawn, axis=0)
    weights, loss = train(weights, batch)
    stopwatch.lap()
stopwatch.print_step_time()
