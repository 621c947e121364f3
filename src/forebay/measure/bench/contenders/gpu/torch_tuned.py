"""torch's DataLoader the way its experts use it: workers make whole batches by one vectorised index."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


class Batches:
    """A dataset that is asked for whole batches."""

    def __init__(self, work: Work) -> None:
        self._rows = torch.from_numpy(array(work))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, indices: list[int]) -> torch.Tensor:
        return self._rows[indices]


def epochs(work: Work) -> StartEpoch:
    workers, batches = int(work.options.get("workers", 0)), Batches(work)
    loader = DataLoader(
        batches,
        sampler=BatchSampler(RandomSampler(batches), work.batch, drop_last=False),
        batch_size=None,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=workers > 0,
    )

    def epoch() -> Iterator[Any]:
        for batch in loader:
            yield batch.to("cuda", non_blocking=True)

    return epoch
