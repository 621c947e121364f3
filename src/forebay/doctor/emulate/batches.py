"""Emulates a resident batch: a loader returns its first batch again and again."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.model.emulation import Emulation, EmulationKind

__all__ = ["MAX_BATCHES", "ResidentBatches"]

MAX_BATCHES = 400  # of a loader of unknown length: more than the measurement needs, but not endless


class ResidentBatches:
    """Decides for every batch whether to replace it."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._kept: dict[Hashable, Any] = {}  # first batch of each owner
        self._left: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # iterator -> batches it has yet to return
        self.leaf_ids: set[int] = set()  # ids of the arrays in the kept batches
        self.replaced = 0

    def applies(self) -> bool:
        """Whether the emulated line takes a batch, and its batch must be resident."""
        return self._emulation.kind is EmulationKind.RESIDENT and self._target.is_calling()

    def next_batch(
        self,
        take: Callable[[], Any],
        iterator: Any,
        owner: Hashable,
        *,
        length: Callable[[], int | None],
        end: Callable[[], Exception] = StopIteration,
    ) -> Any:
        """Return the first batch of `owner`, as often as the iterator has batches; then raise `end()`."""
        if not self.applies():
            return take()
        left = self._left.get(iterator)
        if left is None:  # read once, because the length may need an operation of the framework
            left = length() or MAX_BATCHES
        if left == 0:
            del self._left[iterator]  # a loader may use the iterator for another epoch
            raise end()
        if owner in self._kept:
            self.replaced += 1
        else:
            self._keep(owner, take())
        self._left[iterator] = left - 1
        return self._kept[owner]

    def repeat_first(self, batches: Iterator[Any], owner: Hashable, length: int | None) -> Iterator[Any]:
        """Yield the first batch of a generator `length` times."""
        for batch in islice(batches, 0 if owner in self._kept else 1):
            self._keep(owner, batch)
        if owner in self._kept:
            for batch in repeat(self._kept[owner], length or MAX_BATCHES):
                self.replaced += 1
                yield batch

    def _keep(self, owner: Hashable, batch: Any) -> None:
        self._kept[owner] = batch
        self.leaf_ids |= {id(leaf) for leaf in _leaves_of(batch)}


def _leaves_of(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if not isinstance(batch, list | tuple):
        yield batch
        return
    for value in batch:
        yield from _leaves_of(value)
