"""The table is a JAX array, and the jitted function receives it as an argument."""

import jax
import jax.numpy as jnp

table = jnp.ones((50_000, 500), dtype=jnp.float32)


@jax.jit
def look_up(table, rows):
    return table[rows].sum()


total = jnp.zeros(())
for number in range(20):
    total = total + look_up(table, jnp.arange(64) + number)
answer = float(total)
