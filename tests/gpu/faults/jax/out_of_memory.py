"""The loop keeps the predictions of every step on the device.

The doctor must report `out_of_memory` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, rows, width = (300, 2048, 4096) if gpu else (20, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(1), 4)]


def loss_of(layers, batch):
    hidden = batch
    for layer in layers:
        hidden = jax.nn.relu(hidden @ layer)
    return jnp.square(hidden - batch).mean(), hidden


@jax.jit
def train(layers, batch):
    (loss, hidden), gradients = jax.value_and_grad(loss_of, has_aux=True)(layers, batch)
    layers = [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)]
    return layers, loss, hidden[:512]


predictions, losses = [], []
for step in range(steps):
    layers, loss, predicted = train(layers, batch)
    predictions.append(predicted)
    if step % 10 == 9:
        losses.append(float(loss))
