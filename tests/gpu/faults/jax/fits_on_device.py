"""Every epoch uploads all images again, although they fit on the device.

The doctor must report `fits_on_device` here.
"""

import jax
import jax.numpy as jnp
import numpy as np

gpu = jax.default_backend() == "gpu"
epochs, rows, width = (20, 2048, 4096) if gpu else (2, 16, 16)

images = np.random.default_rng(0).random((15, rows, width), dtype="float32")
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(0), 4)]


def forward(layers, batch):
    for layer in layers:
        batch = jax.nn.relu(batch @ layer)
    return jnp.square(batch - 1).mean()


@jax.jit
def train(layers, batch):
    loss, gradients = jax.value_and_grad(forward)(layers, batch)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)], loss


losses = []
for _ in range(epochs):
    for rows_of_batch in images:
        batch = jax.device_put(rows_of_batch)
        layers, loss = train(layers, batch)
    losses.append(float(loss))
