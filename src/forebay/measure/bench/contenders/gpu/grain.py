"""Grain, with threads that read ahead and its own copy to the device, which runs ahead as well."""

import grain
import jax

from forebay.measure.bench.contenders.gpu import epochs_of
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

THREADS = 16


def epochs(work: Work) -> StartEpoch:
    rows = grain.MapDataset.source(array(work)).shuffle(seed=0).repeat().batch(work.batch)
    ahead = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=THREADS))
    return epochs_of(work, iter(grain.experimental.device_put(ahead, jax.devices("gpu")[0])))
