"""JAX without a loader: NumPy gathers the rows, and JAX copies them."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from forebay.measure.bench.contenders.gpu import index_batches
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["device_put"]


def device_put(work: Workload) -> StartEpoch:
    """Gather each batch with one NumPy indexing operation; copy it with `jax.device_put`."""
    rows, generator, device = make_array(work), np.random.default_rng(0), jax.devices("gpu")[0]

    def epoch() -> Iterator[Any]:
        for indices in index_batches(work, generator):
            yield jax.device_put(rows[indices], device)

    return epoch
