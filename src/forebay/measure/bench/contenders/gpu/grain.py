"""Grain with prefetching threads and its own copy to the device."""

import grain
import jax

from forebay.measure.bench.contenders.gpu import split_into_epochs
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["map_dataset"]

THREADS = 16


def map_dataset(work: Workload) -> StartEpoch:
    """Read a shuffled `MapDataset` in threads, and copy its batches to the GPU."""
    rows = grain.MapDataset.source(make_array(work)).shuffle(seed=0).repeat().batch(work.batch)
    prefetched = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=THREADS))
    return split_into_epochs(work, iter(grain.experimental.device_put(prefetched, jax.devices("gpu")[0])))
