"""The script pads and masks all sentences to one length, so JAX compiles once."""

import jax
import jax.numpy as jnp
import numpy as np

lengths = np.random.default_rng(0).permutation(np.arange(20, 36))


@jax.jit
def embed(table, words, length):
    known = (jnp.arange(64) < length)[:, None]
    return (jnp.tanh(table[words]) * known).sum(axis=0) / length


table = jnp.ones((1000, 32))
words = jnp.arange(64)
vectors = [embed(table, words, length) for length in lengths.tolist()]
answer = float(jnp.stack(vectors).sum())
