"""Grain, with threads that read ahead."""

import grain

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

THREADS = 2


def epochs(work: Work) -> StartEpoch:
    rows = grain.MapDataset.source(array(work)).shuffle(seed=0).batch(work.batch)
    dataset = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=16))
    return lambda: dataset
