"""`jax.device_put` on a ready batch: what a JAX user pays for every array."""

import jax

from forebay.measure.bench.contenders.ready_batches import converted
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    return converted(work, jax.device_put)
