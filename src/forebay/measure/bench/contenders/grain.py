"""Grain with prefetching threads, and its packing of texts."""

from collections.abc import Iterable, Iterator
from typing import Any

import grain
from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset

from forebay.measure.bench.data import PACKING_ROWS, TextSource, make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["map_dataset", "packed_dataset"]

THREADS = 2


def map_dataset(work: Workload) -> StartEpoch:
    """Shuffle and batch a `MapDataset`, which threads read in advance."""
    rows = grain.MapDataset.source(make_array(work)).shuffle(seed=0).batch(work.batch)
    dataset = rows.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=16))
    return lambda: dataset


def packed_dataset(work: Workload) -> StartEpoch:
    """Pack texts into rows by first fit or best fit, as the option "fit" says, and batch the rows."""
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
