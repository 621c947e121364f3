"""Grain with prefetching threads and its own copy to the device."""

from typing import Any

import grain
import jax
import numpy as np

from forebay.measure.bench.contenders.gpu import split_into_epochs
from forebay.measure.bench.data import MIX_WEIGHTS, make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["map_dataset", "mixture"]

THREADS = 16


def map_dataset(work: Workload) -> StartEpoch:
    """Read a shuffled `MapDataset` in threads, and copy its batches to the GPU."""
    return _to_device(work, grain.MapDataset.source(make_array(work)).shuffle(seed=0))


def mixture(work: Workload) -> StartEpoch:
    """Mix three shuffled sources by weight, and copy the batches to the GPU."""
    parts = np.array_split(make_array(work), len(MIX_WEIGHTS))
    shares = [weight / sum(MIX_WEIGHTS) for weight in MIX_WEIGHTS]
    shuffled = [grain.MapDataset.source(rows).shuffle(seed=0) for rows in parts]
    return _to_device(work, grain.MapDataset.mix(shuffled, weights=shares))


def _to_device(work: Workload, rows: Any) -> StartEpoch:
    batches = rows.repeat().batch(work.batch)
    prefetched = batches.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=THREADS))
    return split_into_epochs(work, iter(grain.experimental.device_put(prefetched, jax.devices("gpu")[0])))
