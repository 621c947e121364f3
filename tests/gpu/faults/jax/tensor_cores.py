"""The step multiplies matrices in full float32 precision, without the tensor cores.

The doctor must report `tensor_cores` here.
"""

import jax
import jax.numpy as jnp

gpu = jax.default_backend() == "gpu"
steps, rows, width = (200, 4096, 4096) if gpu else (20, 16, 16)

batch = jax.random.normal(jax.random.key(0), (rows, width))
layers = [jax.random.normal(key, (width, width)) * width**-0.5 for key in jax.random.split(jax.random.key(1), 2)]


def loss_of(layers):
    hidden = jax.nn.relu(jnp.matmul(batch, layers[0], precision="highest"))
    return jnp.square(jnp.matmul(hidden, layers[1], precision="highest") - 1).mean()


@jax.jit
def train(layers):
    loss, gradients = jax.value_and_grad(loss_of)(layers)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients, strict=True)], loss


losses = []
for step in range(steps):
    layers, loss = train(layers)
    if step % 10 == 9:
        losses.append(float(loss))
