"""Epochs of a feed, adapted to the way in which Keras iterates.

Keras does three unusual things, and this module answers each:
- Keras makes iterators that it never uses (two for each epoch). So an epoch begins when Keras takes the first batch.
- Keras takes a batch to look at its shapes and then starts over. So the feed returns such batches again.
- On an accelerator, JAX's trainer fetches host batches one ahead of the model. So the state counts only batches that
  the model has seen.
"""

import weakref
from dataclasses import dataclass
from typing import Any, TypeAlias

from forebay.adapters.keras.fields import Arrange
from forebay.adapters.keras.internals import is_one_batch_ahead
from forebay.core.spec import Tree
from forebay.errors import FeedError

__all__ = ["EpochBatches", "FeedEpochs"]

Owner: TypeAlias = weakref.ref[Any]  # to an EpochIterator of Keras; weak, because that object holds our iterators
_MAX_PEEKED = 2  # batches that Keras may take before it starts over: one for the shapes, and one ahead


@dataclass(frozen=True, slots=True)
class _TakenBatch:
    batch: Tree
    state_before: dict[str, Any]  # the feed's state before the batch was taken


class FeedEpochs:
    """The epochs of a feed, one after the other, for all iterators that Keras makes.

    Each use of the feed by an iterator is a turn. Only the iterator of the current turn may take batches.
    """

    def __init__(self, feed: Any) -> None:
        self._feed = feed
        self._iterator: Any = None  # over one epoch of the feed
        self._turn = 0  # number of the current turn
        self._count = 0  # batches taken in this turn
        self._owner: Owner | None = None  # the EpochIterator of this turn
        self._peeked: list[_TakenBatch] = []  # the first batches of this turn, while Keras may still start over
        self._replayed: list[_TakenBatch] = []  # batches to return again
        self._model_state: dict[str, Any] | None = None  # the state before a batch that Keras fetched ahead
        self._epoch_batches: int | None = None  # batches of this turn's epoch if it was resumed in the middle
        self.next_epoch_batches: int | None = None  # the same for the epoch of the next turn

    def begin(self, owner: Owner | None) -> int:
        """Start the next epoch, or replay the one that this owner only looked at. Return the turn."""
        if not (self._replayed and self._belongs_to(owner() if owner else None)):
            self.release_batches()
            self._iterator = iter(self._feed)
        self._epoch_batches, self.next_epoch_batches = self.next_epoch_batches, None
        self._owner = owner
        self._peeked, self._count = [], 0
        self._turn += 1
        return self._turn

    def take(self, turn: int, *, ahead: bool) -> Tree:
        """Return the next batch. `ahead` means that the model has not yet seen the batch before it."""
        if turn != self._turn:
            raise FeedError(
                "this feed was iterated or moved to another position while fit(), evaluate(), predict() or a loop "
                "used it, which ended the epoch. Make a second feed for the other use: pipeline.feed('keras')."
            )
        needs_state = ahead or self._count < _MAX_PEEKED
        state_before = self._taken_state() if needs_state else {}
        try:
            taken = self._replayed.pop(0) if self._replayed else _TakenBatch(next(self._iterator), state_before)
        except StopIteration:
            self._model_state = None  # the model still gets the last batch, unlike after an error
            raise
        self._model_state = taken.state_before if ahead else None
        # When Keras takes a further batch, the model has run, so Keras will not start over.
        self._peeked = [*self._peeked, taken] if self._count < _MAX_PEEKED else []
        self._count += 1
        return taken.batch

    def replay(self, owner: Any) -> None:
        """Return the owner's batches again, because Keras starts over before the model has seen them."""
        if not self._peeked or not self._belongs_to(owner):
            return
        self._replayed, self._peeked, self._model_state = self._peeked + self._replayed, [], None
        self.next_epoch_batches = self._epoch_batches

    def finish_epoch(self) -> None:
        """Mark all taken batches as used, and end the epoch if none is left.

        Keras counts batches and does not ask for one after the last.
        """
        self._peeked, self._count = [], _MAX_PEEKED
        if self._iterator is not None and self._iterator.is_exhausted:
            next(self._iterator, None)

    def release_batches(self) -> None:
        """Drop all references to batches."""
        self._replayed, self._peeked, self._model_state = [], [], None

    def invalidate(self, batches_left: int | None = None) -> None:
        """End the current turn after the feed moved. `batches_left` is what remains of a resumed epoch."""
        self.release_batches()
        self._turn += 1
        self.next_epoch_batches = batches_left

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that the model has seen."""
        return self._taken_state() if self._model_state is None else self._model_state

    def _taken_state(self) -> dict[str, Any]:
        """Return the state after the last batch that Keras has taken."""
        state: dict[str, Any] = self._replayed[0].state_before if self._replayed else self._feed.state_dict()
        return state

    def _belongs_to(self, owner: Any) -> bool:
        return owner is not None and self._owner is not None and self._owner() is owner


class EpochBatches:
    """One iterator for Keras. It begins an epoch at its first batch, so an unused one has no effect."""

    def __init__(
        self, epochs: FeedEpochs, arrange: Arrange, owner: Owner | None = None, *, may_run_ahead: bool = False
    ) -> None:
        self._epochs = epochs
        self._arrange = arrange
        self._owner = owner
        self._may_run_ahead = may_run_ahead
        self._turn: int | None = None

    def __iter__(self) -> "EpochBatches":
        return self

    def __next__(self) -> tuple[Any, ...]:
        ahead = self._may_run_ahead and is_one_batch_ahead()
        if self._turn is None:
            self._turn = self._epochs.begin(self._owner)
        return self._arrange(self._epochs.take(self._turn, ahead=ahead))
