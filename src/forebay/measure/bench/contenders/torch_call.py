"""`torch.from_numpy` on a ready batch: the least a torch user pays."""

import torch

from forebay.measure.bench.contenders.ready_batches import converted
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    return converted(work, torch.from_numpy)
