"""Before each call of the compiled step, Flax takes the model and the optimizer apart."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

model = nnx.Sequential(*[nnx.Linear(64, 64, rngs=nnx.Rngs(0)) for _ in range(12)])
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
batch = jax.random.normal(jax.random.key(0), (32, 64))


@nnx.jit
def train_step(model, optimizer, batch):
    loss, gradients = nnx.value_and_grad(lambda model: jnp.mean(model(batch) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


for _ in range(400):
    loss = train_step(model, optimizer, batch)
