"""Grain with prefetching threads."""

import grain

from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["map_dataset"]

THREADS = 2


def map_dataset(work: Workload) -> StartEpoch:
    """Shuffle and batch a `MapDataset`, which threads read in advance."""
    rows = grain.MapDataset.source(make_array(work)).shuffle(seed=0).batch(work.batch)
    dataset = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=16))
    return lambda: dataset
