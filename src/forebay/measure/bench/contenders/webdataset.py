"""WebDataset on `.tar` files of images."""

import os
from functools import partial
from pathlib import Path

import webdataset

from forebay.measure.bench.image_files import resize_with_pillow
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["web_loader"]

WINDOW = 1000  # samples that WebDataset shuffles, as in its documentation


def web_loader(work: Workload) -> StartEpoch:
    """Read and decode `.tar` files with WebDataset in worker processes, and resize with Pillow."""
    shards = sorted(map(str, Path(work.path).glob("*.tar")))
    workers = min(len(os.sched_getaffinity(0)), len(shards))
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(WINDOW).decode("pil")
    rows = samples.to_tuple("jpg", "cls").map_tuple(partial(resize_with_pillow, shape=work.shape), int)
    loader = webdataset.WebLoader(rows.batched(work.batch), batch_size=None, num_workers=workers)
    return lambda: loader
