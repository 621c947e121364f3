"""When an epoch of the feed begins and what it has given, seen through the way Keras iterates.

Keras makes iterators it never uses (two for each epoch), takes a batch to look at shapes and then starts over, and
JAX's trainer, which sends batches of the host to an accelerator, stays one ahead of the model. So an epoch begins with
the first batch that is asked for, batches that were only looked at are handed out again, and the state counts what the
model has seen.
"""

import weakref
from dataclasses import dataclass
from typing import Any, TypeAlias

from forebay.adapters.keras.fields import Arrange
from forebay.adapters.keras.internals import called_one_batch_ahead
from forebay.core.spec import Tree
from forebay.errors import FeedError

__all__ = ["Batches", "Epochs"]

Owner: TypeAlias = weakref.ref[Any]  # an EpochIterator: it keeps our iterators, so they must not keep it
_LOOKED_AT = 2  # batches Keras may take before it starts over: one, and the one ahead of it


@dataclass(frozen=True, slots=True)
class _Taken:
    batch: Tree
    before: dict[str, Any]  # the state as if it had not been taken


class Epochs:
    """The feed's epochs, one after the other, whoever asks for their batches."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed
        self._iterator: Any = None  # an epoch of the feed
        self._turn = 0  # which Batches may take
        self._count = 0  # batches taken in this turn
        self._owner: Owner | None = None  # the EpochIterator that the current turn belongs to
        self._first: list[_Taken] = []  # the first batches of this turn, while they may still be handed back
        self._waiting: list[_Taken] = []  # handed back, to be given out again
        self._ahead: dict[str, Any] | None = None  # the model's state, where Keras is a batch ahead of it
        self._left: int | None = None  # batches of the epoch of this turn, where it was resumed in its middle
        self.next_left: int | None = None  # the same of the epoch that the next turn begins

    def begin(self, owner: Owner | None) -> int:
        """Start the next epoch, or go on with the one that this owner only looked at."""
        if not (self._waiting and self._belongs_to(owner() if owner else None)):
            self.drop()
            self._iterator = iter(self._feed)
        self._left, self.next_left = self.next_left, None
        self._owner = owner
        self._first, self._count = [], 0
        self._turn += 1
        return self._turn

    def take(self, turn: int, *, ahead: bool) -> Tree:
        """The next batch of this turn."""
        if turn != self._turn:
            raise FeedError(
                "this feed was iterated, or set to another place, while fit(), evaluate(), predict() or a loop was "
                "using it: that ended the epoch. Make a second feed for the other use, with pipeline.feed('keras')."
            )
        watched = ahead or self._count < _LOOKED_AT
        before = self._taken_state() if watched else {}
        try:
            taken = self._waiting.pop(0) if self._waiting else _Taken(next(self._iterator), before)
        except StopIteration:
            self._ahead = None  # the model still gets what Keras has; after an error it does not
            raise
        self._ahead = taken.before if ahead else None
        # One batch more means that the model is being run: nothing will be handed back any more.
        self._first = [*self._first, taken] if self._count < _LOOKED_AT else []
        self._count += 1
        return taken.batch

    def hand_back(self, owner: Any) -> None:
        """Give the owner's batches out once more: it starts over before the model has seen any."""
        if not self._first or not self._belongs_to(owner):
            return
        self._waiting, self._first, self._ahead = self._first + self._waiting, [], None
        self.next_left = self._left

    def settle(self) -> None:
        """What was taken has been used. Keras counts batches and asks for none beyond the last: the epoch ends here."""
        self._first, self._count = [], _LOOKED_AT
        if self._iterator is not None and self._iterator.spent:
            next(self._iterator, None)

    def drop(self) -> None:
        """Let go of every batch that is held."""
        self._waiting, self._first, self._ahead = [], [], None

    def move(self, batches_left: int | None = None) -> None:
        """The feed was set to stand elsewhere; with `batches_left`, so many batches before the end of an epoch."""
        self.drop()
        self._turn += 1  # nobody goes on from where it stood
        self.next_left = batches_left

    def state_dict(self) -> dict[str, Any]:
        """Where the model stands."""
        return self._taken_state() if self._ahead is None else self._ahead

    def _taken_state(self) -> dict[str, Any]:
        """Where Keras stands."""
        state: dict[str, Any] = self._waiting[0].before if self._waiting else self._feed.state_dict()
        return state

    def _belongs_to(self, owner: Any) -> bool:
        return owner is not None and self._owner is not None and self._owner() is owner


class Batches:
    """One iterator that Keras asked for; it costs nothing until it is used."""

    def __init__(
        self, epochs: Epochs, arrange: Arrange, owner: Owner | None = None, *, may_run_ahead: bool = False
    ) -> None:
        self._epochs = epochs
        self._arrange = arrange
        self._owner = owner
        self._may_run_ahead = may_run_ahead
        self._turn: int | None = None

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> tuple[Any, ...]:
        ahead = self._may_run_ahead and called_one_batch_ahead()
        if self._turn is None:
            self._turn = self._epochs.begin(self._owner)
        return self._arrange(self._epochs.take(self._turn, ahead=ahead))
