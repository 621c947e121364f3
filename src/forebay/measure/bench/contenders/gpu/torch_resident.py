"""All rows on the GPU, and torch picks a batch there: what its users write once they know that the data fits."""

from collections.abc import Iterator
from typing import Any

import torch

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    rows = torch.from_numpy(array(work)).to("cuda")

    def epoch() -> Iterator[Any]:
        for indices in torch.randperm(work.rows, device="cuda").split(work.batch):
            yield rows.index_select(0, indices)

    return epoch
