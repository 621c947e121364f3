"""No loader: NumPy gathers the rows of a batch at once, `jax.device_put` copies them."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from forebay.measure.bench.contenders.gpu import index_batches
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    rows, generator, device = array(work), np.random.default_rng(0), jax.devices("gpu")[0]

    def epoch() -> Iterator[Any]:
        for indices in index_batches(work, generator):
            yield jax.device_put(rows[indices], device)

    return epoch
