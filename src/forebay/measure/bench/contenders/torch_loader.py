"""torch's DataLoader as its tutorial teaches it: row by row, collated."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    workers = int(work.options.get("workers", 0))
    loader = DataLoader(
        TensorDataset(torch.from_numpy(array(work))),
        batch_size=work.batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: loader
