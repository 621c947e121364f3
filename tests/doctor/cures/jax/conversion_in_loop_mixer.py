"""The loop passes NumPy slices of spectrograms to the compiled step, and JAX uploads each."""

import jax
import jax.numpy as jnp
import numpy as np
from stopwatch import Stopwatch

gpu = jax.default_backend() == "gpu"
steps, batch_rows, side, patch, width, depth = (500, 512, 128, 16, 512, 2) if gpu else (60, 16, 32, 8, 32, 2)

generator = np.random.default_rng(0)
sounds = generator.random((16 * batch_rows, side, side), dtype="float32")
patches = side // patch
sizes = [(patch**2, width), *[(patches**2, patches**2), (width, 2 * width), (2 * width, width)] * depth]
weights = [jnp.asarray(generator.normal(0, size[0] ** -0.5, size), "float32") for size in sizes]


def forward(weights, batch):
    cut = batch.reshape(-1, patches, patch, patches, patch).swapaxes(2, 3)
    hidden = cut.reshape(-1, patches**2, patch**2) @ weights[0]
    for mix, widen, narrow in zip(weights[1::3], weights[2::3], weights[3::3], strict=True):
        hidden = hidden + jnp.einsum("btc,ts->bsc", hidden, mix)
        hidden = hidden + jax.nn.gelu(hidden @ widen) @ narrow
    return jnp.square(hidden.mean(axis=1) - 1).mean()


@jax.jit
def train(weights, batch):
    loss, gradients = jax.value_and_grad(forward)(weights, batch)
    return [weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)], loss


stopwatch = Stopwatch(lambda: jax.block_until_ready(weights))
for _ in range(steps):
    start = generator.integers(len(sounds) - batch_rows)
    batch = sounds[start : start + batch_rows]
    weights, loss = train(weights, batch)
    stopwatch.lap()
stopwatch.print_step_time()
