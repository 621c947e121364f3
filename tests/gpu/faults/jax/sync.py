"""The loop waits for the device in every step to measure the step time.

The doctor must report `sync` here.
"""

from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np

gpu = jax.default_backend() == "gpu"
steps, rows, width = (500, 4096, 4096) if gpu else (20, 16, 16)

generator = np.random.default_rng(0)
batch = jax.random.normal(jax.random.key(0), (rows, width))
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(1), 2)]


@jax.jit
def train(layers, batch):
    loss, gradients = jax.value_and_grad(
        lambda layers: jnp.square(jax.nn.relu(batch @ layers[0]) @ layers[1] - batch).mean()
    )(layers)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)], loss


times, spreads = [perf_counter()], []
for _ in range(steps):
    layers, loss = train(layers, batch)
    jax.block_until_ready(loss)
    times.append(perf_counter())
    # Host work that can overlap with the device: a bootstrap of the mean of the step times.
    drawn = generator.choice(np.diff(times), (1000, 100))
    spreads.append(np.percentile(drawn.mean(axis=1), [5, 95]))
