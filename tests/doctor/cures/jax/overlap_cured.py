"""The loop uploads the next window while the device computes the step."""

import jax
import jax.numpy as jnp
import numpy as np
from stopwatch import Stopwatch

gpu = jax.default_backend() == "gpu"
steps, batch_rows, width = (800, 2048, 4096) if gpu else (60, 128, 256)

generator = np.random.default_rng(0)
recording = generator.random((32 * batch_rows, width), dtype="float32")
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


def fetch():
    start = generator.integers(len(recording) - batch_rows)
    return jax.device_put(recording[start : start + batch_rows])


losses = []
next_window = fetch()
stopwatch = Stopwatch(lambda: jax.block_until_ready(weights))
for _ in range(steps):
    window = next_window
    weights, loss = train(weights, window)
    next_window = fetch()
    losses.append(float(loss))
    stopwatch.lap()
stopwatch.print_step_time()
