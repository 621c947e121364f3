"""torch's DataLoader the way its experts use it: a BatchSampler picks indices, one vectorised index makes the batch."""

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from forebay.measure.bench.data import array, slow_python
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


class Batches:
    """A dataset that is asked for whole batches."""

    def __init__(self, work: Work) -> None:
        self._rows = torch.from_numpy(array(work))
        self._mapped = bool(work.options.get("map"))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, indices: list[int]) -> torch.Tensor:
        batch = self._rows[indices]
        return torch.from_numpy(slow_python(batch.numpy())) if self._mapped else batch


def epochs(work: Work) -> StartEpoch:
    workers, batches = int(work.options.get("workers", 0)), Batches(work)
    sampler = BatchSampler(RandomSampler(batches), work.batch, drop_last=False)
    loader = DataLoader(batches, sampler=sampler, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader
