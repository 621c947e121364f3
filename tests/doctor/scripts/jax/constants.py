"""A jitted function uses a large NumPy table, which JAX compiles in as a constant."""

import jax
import jax.numpy as jnp
import numpy as np

table = np.ones((50_000, 500), dtype=np.float32)


@jax.jit
def look_up(rows):
    return jnp.asarray(table)[rows].sum()


total = jnp.zeros(())
for number in range(20):
    total = total + look_up(jnp.arange(64) + number)
answer = float(total)
