"""The epochs of a feed, adapted to how Keras iterates.

Keras does three unusual things:
- Keras creates iterators that it never uses (two for each epoch). So an epoch begins when Keras takes the first batch.
- Keras takes a batch to read its shapes, and then starts the epoch again. So the feed returns this batch a second time.
- On an accelerator, the JAX trainer fetches each host batch one step early. So the state counts only batches that the
  model has seen.
"""

import weakref
from dataclasses import dataclass
from typing import Any, TypeAlias

from forebay.adapters.keras.fields import Arranger
from forebay.adapters.keras.internals import is_one_batch_ahead
from forebay.core.spec import Tree
from forebay.errors import FeedError

__all__ = ["EpochBatches", "FeedEpochs"]

EpochIteratorRef: TypeAlias = weakref.ref[Any]  # weak, because Keras's EpochIterator refers to an EpochBatches
_MAX_REPLAYED = 2  # batches that Keras may take before it restarts an epoch: one for the shapes, and one fetched early


@dataclass(frozen=True, slots=True)
class _TakenBatch:
    batch: Tree
    state_before: dict[str, Any]  # the feed's state before the batch was taken


class FeedEpochs:
    """The epochs of a feed, which all iterators of Keras share.

    An iterator starts a turn when it takes its first batch. Only the iterator of the current turn may take batches. The
    owner of a turn is Keras's `EpochIterator` that uses the iterator.
    """

    def __init__(self, feed: Any) -> None:
        self._feed = feed
        self._epoch: Any = None  # iterator over the current epoch of the feed
        self._turn_number = 0  # number of the current turn
        self._taken_count = 0  # number of batches taken in this turn
        self._owner: EpochIteratorRef | None = None  # owner of this turn
        self._replayable: list[_TakenBatch] = []  # the first batches of this turn, while Keras may restart the epoch
        self._to_replay: list[_TakenBatch] = []  # batches to return a second time
        # The feed's state before the batch that Keras fetched early; None if Keras fetched no batch early.
        self._model_state: dict[str, Any] | None = None
        self._epoch_batches: int | None = None  # number of batches in this turn's epoch, if it was resumed
        self.next_epoch_batches: int | None = None  # number of batches in the next turn's epoch, if it was resumed

    @property
    def is_unused(self) -> bool:
        """Whether no batch was taken, and the feed was not moved to another position."""
        return self._turn_number == 0

    def begin(self, owner: EpochIteratorRef | None) -> int:
        """Start a turn and return its number.

        Start the next epoch of the feed, unless there are batches to replay for this owner.
        """
        if not (self._to_replay and self._is_owned_by(owner() if owner else None)):
            self.release_batches()
            self._epoch = iter(self._feed)
        self._epoch_batches, self.next_epoch_batches = self.next_epoch_batches, None
        self._owner = owner
        self._replayable, self._taken_count = [], 0
        self._turn_number += 1
        return self._turn_number

    def take(self, turn: int, *, is_ahead: bool) -> Tree:
        """Return the next batch.

        `is_ahead` means that Keras fetches the batch before the model has seen the previous batch.
        """
        if turn != self._turn_number:
            raise FeedError(
                "this feed was iterated or moved to another position while fit(), evaluate(), predict() or a loop "
                "used it. This ended the epoch. Make a second feed for the other use: pipeline.feed('keras')."
            )
        needs_state = is_ahead or self._taken_count < _MAX_REPLAYED
        state_before = self._state_of_taken() if needs_state else {}
        try:
            taken = self._to_replay.pop(0) if self._to_replay else _TakenBatch(next(self._epoch), state_before)
        except StopIteration:
            self._model_state = None  # at the end of an epoch, the model sees the last batch that Keras has taken
            raise
        self._model_state = taken.state_before if is_ahead else None
        # If Keras takes more batches than _MAX_REPLAYED, the model has run, so Keras will not restart the epoch.
        self._replayable = [*self._replayable, taken] if self._taken_count < _MAX_REPLAYED else []
        self._taken_count += 1
        return taken.batch

    def replay(self, owner: Any) -> None:
        """Make `take` return the owner's batches a second time, because Keras restarts the epoch."""
        if not self._replayable or not self._is_owned_by(owner):
            return
        self._to_replay, self._replayable, self._model_state = self._replayable + self._to_replay, [], None
        self.next_epoch_batches = self._epoch_batches

    def finish_epoch(self) -> None:
        """Record that Keras will not restart the epoch; end an exhausted epoch.

        Keras counts batches and requests none after the last batch, so the feed would not notice the end.
        """
        self._replayable, self._taken_count = [], _MAX_REPLAYED  # later batches of this turn are not replayable
        if self._epoch is not None and self._epoch.spent:
            next(self._epoch, None)

    def release_batches(self) -> None:
        """Drop all references to batches, so that the feed can reuse their slots."""
        self._to_replay, self._replayable, self._model_state = [], [], None

    def invalidate(self, batches_left: int | None = None) -> None:
        """End the current turn, because the feed moved to another position.

        `batches_left` is the number of batches that remain in a resumed epoch; None for a complete epoch.
        """
        self.release_batches()
        self._turn_number += 1
        self.next_epoch_batches = batches_left

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that the model has seen."""
        return self._state_of_taken() if self._model_state is None else self._model_state

    def _state_of_taken(self) -> dict[str, Any]:
        """Return the state after the last batch that Keras has taken."""
        state: dict[str, Any] = self._to_replay[0].state_before if self._to_replay else self._feed.state_dict()
        return state

    def _is_owned_by(self, owner: Any) -> bool:
        return owner is not None and self._owner is not None and self._owner() is owner


class EpochBatches:
    """An iterator that starts an epoch of the feed when Keras takes the first batch."""

    def __init__(
        self,
        epochs: FeedEpochs,
        arrange: Arranger,
        owner: EpochIteratorRef | None = None,
        *,
        may_run_ahead: bool = False,
    ) -> None:
        self._epochs = epochs
        self._arrange = arrange
        self._owner = owner
        self._may_run_ahead = may_run_ahead
        self._turn_number: int | None = None

    def __iter__(self) -> "EpochBatches":
        return self

    def __next__(self) -> tuple[Any, ...]:
        is_ahead = self._may_run_ahead and is_one_batch_ahead()
        if self._turn_number is None:
            self._turn_number = self._epochs.begin(self._owner)
        return self._arrange(self._epochs.take(self._turn_number, is_ahead=is_ahead))
