"""A Forebay feed uploads each window during the previous step, unlike `device_put`.

The doctor must not report `copy_not_overlapped` here.
"""

import jax
import jax.numpy as jnp
import numpy as np

import forebay as fb

gpu = jax.default_backend() == "gpu"
rounds, rows, width = (16, 2048, 4096) if gpu else (2, 16, 16)

recording = np.random.default_rng(0).random((16 * rows, width), dtype="float32")
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(0), 12)]


def forward(layers, batch):
    for layer in layers:
        batch = jax.nn.relu(batch @ layer)
    return jnp.square(batch - 1).mean()


@jax.jit
def train(layers, batch):
    loss, gradients = jax.value_and_grad(forward)(layers, batch)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)], loss


losses = []
with fb.from_arrays(recording).batch(rows).repeat(rounds).feed("jax", resident="never") as feed:
    for step, window in enumerate(feed):
        layers, loss = train(layers, window)
        if step % 10 == 9:
            losses.append(float(loss))
