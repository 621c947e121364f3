"""Grain with prefetching threads: rows, image files and packed texts."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import grain
import numpy as np
from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset

from forebay.measure.bench.data import MIX_WEIGHTS, PACKING_ROWS, TextSource, make_array
from forebay.measure.bench.image_files import ImageFolderDataset, load_with_pillow
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["image_folder", "map_dataset", "mixture", "packed_dataset"]

THREADS = 2


def map_dataset(work: Workload) -> StartEpoch:
    """Shuffle and batch a `MapDataset`, which threads read in advance."""
    rows = grain.MapDataset.source(make_array(work)).shuffle(seed=0).batch(work.batch)
    dataset = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=16))
    return lambda: dataset


def image_folder(work: Workload) -> StartEpoch:
    """Decode and resize with Pillow in the threads of Grain."""
    files, threads = ImageFolderDataset(work, load_with_pillow), len(os.sched_getaffinity(0))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=work.batch)  # rows
    dataset = grain.MapDataset.source(files).shuffle(seed=0).to_iter_dataset(options).batch(work.batch)
    return lambda: dataset


def mixture(work: Workload) -> StartEpoch:
    """Mix three shuffled sources by weight, and batch the rows."""
    parts = [
        grain.MapDataset.source(rows).shuffle(seed=0) for rows in np.array_split(make_array(work), len(MIX_WEIGHTS))
    ]
    rows = grain.MapDataset.mix(parts, weights=[weight / sum(MIX_WEIGHTS) for weight in MIX_WEIGHTS]).batch(work.batch)
    dataset = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=16))
    return lambda: dataset


def packed_dataset(work: Workload) -> StartEpoch:
    """Pack texts into rows, and batch the rows.

    The option "fit" is "first" for first fit, and "best" for best fit.
    """
    pack = FirstFitPackIterDataset if work.options["fit"] == "first" else BestFitPackIterDataset
    texts = grain.MapDataset.source(TextSource(work)).map(lambda text: {"tokens": text})
    rows = texts.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=256))
    packed = pack(rows, length_struct={"tokens": work.shape[0]}, num_packing_bins=PACKING_ROWS)
    dataset = packed.batch(work.batch)
    return lambda: _rename(dataset)


def _rename(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield batches with the field names of Forebay."""
    for batch in batches:
        yield {
            "tokens": batch["tokens"],
            "segment_ids": batch["tokens_segment_ids"],
            "positions": batch["tokens_positions"],
        }
