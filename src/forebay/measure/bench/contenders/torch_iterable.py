"""torch's DataLoader over an IterableDataset: what a torch user does with rows from Python."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from forebay.measure.bench.data import generator_rows
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


class Rows(IterableDataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """The generator as torch wants it."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __iter__(self) -> Iterator[Any]:
        return generator_rows(self._work)


def epochs(work: Work) -> StartEpoch:
    loader = DataLoader(Rows(work), batch_size=work.batch)
    return lambda: loader
