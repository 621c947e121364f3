"""JAX without a loader: JAX copies rows that NumPy gathers, or gathers resident rows."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import jax
import numpy as np

from forebay.measure.bench.contenders.gpu import index_batches
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["device_put", "resident_rows"]


def device_put(work: Workload) -> StartEpoch:
    """Gather each batch with one NumPy indexing operation; copy it with `jax.device_put`."""
    rows, generator, device = make_array(work), np.random.default_rng(0), jax.devices("gpu")[0]

    def epoch() -> Iterator[Any]:
        for indices in index_batches(work, generator):
            yield jax.device_put(rows[indices], device)

    return epoch


def resident_rows(work: Workload) -> StartEpoch:
    """Keep all rows on the GPU, and permute and select them there in compiled calls."""
    device = jax.devices("gpu")[0]
    rows, keys = jax.device_put(make_array(work), device), count()
    permute = jax.jit(lambda key: jax.random.permutation(key, work.rows).reshape(-1, work.batch))
    select = jax.jit(lambda rows, order, number: rows[order[number]])

    def epoch() -> Iterator[Any]:
        order = permute(jax.device_put(jax.random.key(next(keys)), device))
        for number in range(work.batches):
            yield select(rows, order, number)

    return epoch
