"""JAX without a loader: the conversion of one batch."""

import jax

from forebay.measure.bench.contenders.numpy import convert_ready_batches
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["device_put"]


def device_put(work: Workload) -> StartEpoch:
    """Call `jax.device_put` on a ready-made batch, as JAX users do with every array."""
    return convert_ready_batches(work, jax.device_put)
