"""One batch in place of a loader: the first that it gives is given again and again."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.emulate.target_line import Place
from forebay.doctor.model.emulation import Emulation, Way

__all__ = ["MOST_BATCHES", "Batches"]

MOST_BATCHES = 400  # of a loader that does not say how many it has: more than are needed, and an end all the same


class Batches:
    """Asked at every batch, whoever takes it."""

    def __init__(self, emulation: Emulation, place: Place) -> None:
        self._emulation, self._place = emulation, place
        self._kept: dict[Hashable, Any] = {}  # by whose batch it is
        self._left: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # batches that each iterator has yet to give
        self.leaves: set[int] = set()  # ids of the arrays in what is kept
        self.replaced = 0

    def is_asked_for(self) -> bool:
        """Whether it is the line that gets a resident batch."""
        return self._emulation.way is Way.RESIDENT and self._place.is_here()

    def instead(
        self,
        take: Callable[[], Any],
        iterator: Any,
        owner: Hashable,
        *,
        length: Callable[[], int | None],
        end: Callable[[], Exception] = StopIteration,
    ) -> Any:
        """The first batch, as often as the iterator has any; `take` gives it, and `owner` says who has given it."""
        if not self.is_asked_for():
            return take()
        left = self._left.get(iterator)
        if left is None:  # asked once: to know it may take an operation of the framework's
            left = length() or MOST_BATCHES
        if left == 0:
            del self._left[iterator]  # a loader may begin anew with the same iterator
            raise end()
        if owner in self._kept:
            self.replaced += 1
        else:
            self.keep(owner, take())
        self._left[iterator] = left - 1
        return self._kept[owner]

    def repeated(self, batches: Iterator[Any], owner: Hashable, length: int | None) -> Iterator[Any]:
        """The same for whoever takes all batches out of one generator."""
        for batch in islice(batches, 0 if owner in self._kept else 1):
            self.keep(owner, batch)
        if owner in self._kept:
            for batch in repeat(self._kept[owner], length or MOST_BATCHES):
                self.replaced += 1
                yield batch

    def keep(self, owner: Hashable, batch: Any) -> None:
        self._kept[owner] = batch
        self.leaves |= {id(leaf) for leaf in _leaves(batch)}


def _leaves(batch: Any) -> Iterator[Any]:
    """Whatever a batch is put together from."""
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if not isinstance(batch, list | tuple):
        yield batch
        return
    for value in batch:
        yield from _leaves(value)
