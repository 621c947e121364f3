"""Emulation of resident batches: a loader returns its first batch again and again."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.model.emulation import Emulation, EmulationKind

__all__ = ["MAX_BATCHES", "ResidentBatches"]

MAX_BATCHES = 400  # per epoch, for a loader of unknown length; the measurement needs fewer


class ResidentBatches:
    """Replaces the batches of the target line by the first batch of their owner.

    The owner is the object that produces the batches, such as a dataset. This class also holds the options of the
    emulations that give a loader workers or replace a loader by a feed.
    """

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._first_batches: dict[Hashable, Any] = {}  # owner -> first batch
        self._remaining: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # iterator -> batches that it still returns
        self.leaf_ids: set[int] = set()  # ids of the arrays in the first batches
        self.workers = emulation.workers if emulation.kind is EmulationKind.WORKERS else 0  # of each loader
        self.feeds: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # loader -> the feed that replaces it
        self.rows = emulation.rows  # what the feeds read: a value of `FeedRows`, or ""
        # Number of replacements so far: of batches, of tf.data datasets of Keras, of loaders that got workers, or of
        # iterations over loaders that a feed replaces.
        self.replaced = 0

    def should_replace(self) -> bool:
        """Whether the emulation makes batches resident and the target line makes the current call."""
        return self._emulation.kind is EmulationKind.RESIDENT and self._target.is_calling()

    def should_feed(self) -> bool:
        """Whether the emulation replaces loaders by feeds and the target line makes the current call."""
        return self._emulation.kind is EmulationKind.FEED and self._target.is_calling()

    def next_batch(
        self,
        take_batch: Callable[[], Any],
        iterator: Any,
        owner: Hashable,
        *,
        length: Callable[[], int | None],
        end: Callable[[], Exception] = StopIteration,
    ) -> Any:
        """Return the first batch of `owner` on the target line, or `take_batch()` on other lines.

        `iterator` is the iterator from which the script takes the batch. After `length()` batches, raise `end()`. If
        `length()` is None or 0, raise `end()` after MAX_BATCHES batches.
        """
        if not self.should_replace():
            return take_batch()
        remaining = self._remaining.get(iterator)
        if remaining is None:  # read the length once, because it may need an operation of the framework
            remaining = length() or MAX_BATCHES
        if remaining == 0:
            del self._remaining[iterator]  # a loader may use the same iterator for another epoch
            raise end()
        if owner in self._first_batches:
            self.replaced += 1
        else:
            self._store_first(owner, take_batch())
        self._remaining[iterator] = remaining - 1
        return self._first_batches[owner]

    def repeat_first(self, batches: Iterator[Any], owner: Hashable, length: int | None) -> Iterator[Any]:
        """Yield the first batch of `owner` `length` times.

        If `length` is None or 0, yield it MAX_BATCHES times. If the first batch is not known yet, read it from
        `batches`. Yield nothing if `batches` is empty.
        """
        for batch in islice(batches, 0 if owner in self._first_batches else 1):
            self._store_first(owner, batch)
        if owner in self._first_batches:
            for batch in repeat(self._first_batches[owner], length or MAX_BATCHES):
                self.replaced += 1
                yield batch

    def _store_first(self, owner: Hashable, batch: Any) -> None:
        self._first_batches[owner] = batch
        self.leaf_ids |= {id(leaf) for leaf in _leaves_of(batch)}


def _leaves_of(batch: Any) -> Iterator[Any]:
    """Yield the arrays in a nest of dicts, lists and tuples."""
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if not isinstance(batch, list | tuple):
        yield batch
        return
    for value in batch:
        yield from _leaves_of(value)
