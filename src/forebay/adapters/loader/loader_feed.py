"""The feed of a loader, which follows the rank and the epoch of the trainer.

A trainer may start the ranks after the script has made its loaders. So the loader builds its feed at first use. If the
rank of the process has changed before an epoch, it builds a new feed at the same position.
"""

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from forebay.core.recorder import Recorder, describe_received
from forebay.core.spec import Tree
from forebay.errors import FeedClosedError, StateError
from forebay.feed.epoch import Epoch
from forebay.feed.feed import Feed
from forebay.feed.reports import RegularReports
from forebay.order.schedule import ENDLESS, Cursor, Schedule
from forebay.pipeline.card import Explanation
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.ranks import Rank, detect_rank
from forebay.pipeline.validate import validate_epoch

__all__ = ["LastBatchSignal", "LoaderBatches", "LoaderFeed", "cursor_of_batch"]

UNKNOWN = -1  # stands for a number of batches or rows if the epoch is endless, or if its length is unknown


class LoaderFeed:
    """The feed of a loader, with the number of its next epoch."""

    def __init__(self, pipeline: Pipeline, options: FeedOptions) -> None:
        self._pipeline, self.options = pipeline, options
        # Whether the rank decides which rows this process gets. False if the script called `shard(index, count)`.
        self._shards_by_rank = isinstance(pipeline.rank, Rank) or not pipeline.has_shard
        self._feed: Feed | None = None
        self._is_closed = False
        self._next_epoch = 0  # the epoch that the next iterator starts or continues, unless `_requested` names another
        # The iterator that began last; None after a change of position. A strong reference would make a cycle.
        self._current: weakref.ref[LoaderBatches] | None = None
        self._requested: _EpochRequest | None = None  # what `set_epoch` requested for the next iterator
        self._named_epoch: int | None = None  # the last argument of `set_epoch`
        self._kept_epoch = 0  # `set_epoch` with this number keeps the position, if no iterator has begun
        self._indexed: LoaderBatches | None = None  # the iterator from which `batch_at` takes batches
        self._indexed_place = (0, 0)  # epoch and number of the next batch of `_indexed`
        self._stream_end: tuple[int, int] | None = None  # an epoch of a stream, and the number of its batches
        self.last_batch_signal = LastBatchSignal()
        # If `_follow_rank` builds a new feed, the new feed continues to use these.
        self.recorder, self.reports = Recorder(), RegularReports()

    # The feed

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline with the rank that this process has now."""
        self._follow_rank()
        return self._pipeline

    @property
    def feed(self) -> Feed:
        """The feed for the rank that `_follow_rank` found last. The first access builds it."""
        if self._is_closed:
            raise FeedClosedError("the loader was closed: make a new one with pipeline.feed('loader').")
        if self._feed is None:
            self._feed = Feed(self.pipeline, self.options, self.recorder, self.reports)
        return self._feed

    @property
    def has_position(self) -> bool:
        return self._feed is not None or self._requested is not None

    @property
    def feed_of_rank(self) -> Feed:
        """The feed, with the rank that this process has now."""
        self._follow_rank()
        return self.feed

    def _follow_rank(self) -> None:
        """Use the rank that this process has now, and keep the position."""
        rank = detect_rank() if self._shards_by_rank else self._pipeline.rank
        if self._pipeline.rank == rank:
            return
        assert isinstance(rank, Rank)
        if self._is_iterating and (rank.index, rank.count) == (self._pipeline.shard_index, self._pipeline.shard_count):
            return  # index and count are the same; only the launcher that reports them has changed
        self._pipeline = replace(self._pipeline, rank=rank, shard_index=rank.index, shard_count=rank.count)
        if self._feed is not None and not self._is_closed:
            state = self._feed.state_dict()
            self._feed.close()
            self._feed = Feed(self._pipeline, self.options, self.recorder, self.reports)
            if self._current is None:
                self._feed.load_state_dict(state)
            else:  # an iterator began, so the next one starts another epoch
                self._move_to(self.next_epoch)

    def close(self) -> None:
        self._is_closed = True
        if self._feed is not None:
            self._feed.close()

    # Reports. They work also after `close`. Of these methods, only `explain` builds the feed.

    def stats(self) -> dict[str, Any]:
        if self._feed is not None:
            return self._feed.stats()
        shard = {"rank": self._pipeline.shard_index, "shards": self._pipeline.shard_count}
        return describe_received(self.recorder.received()) | shard

    def explain(self) -> str:
        if self._feed is None and self._is_closed:
            return Explanation(f"the loader was closed before it was used:\n{self._pipeline!r}")
        return (self._feed or self.feed).explain()

    def card(self) -> str:
        return (self._pipeline if self._feed is None else self._feed)._repr_html_()

    def __str__(self) -> str:
        return repr(self._pipeline if self._feed is None else self._feed)

    # The position

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iterator starts or continues."""
        return self._next_epoch if self._requested is None else self._requested.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last received batch.

        If `set_epoch` has requested an epoch after this batch, return the start of that epoch. If the state has another
        epoch than the last `set_epoch`, because a trainer repeats a short loader, `named_epoch` is that of `set_epoch`.
        """
        state, requested = self.feed.state_dict(), self._requested
        if requested is not None and requested.replaces(state):
            state = Cursor(epoch=requested.epoch).state_dict(self._pipeline.fingerprint)
        if self._named_epoch is not None and self._named_epoch != state["epoch"]:
            state["named_epoch"] = self._named_epoch
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iterator start at the position of a state.

        If all shards have finished the epoch of the state, the iterator starts the next epoch.
        """
        self.feed_of_rank.load_state_dict(state)
        cursor = Cursor.from_state(state, self._pipeline.fingerprint)
        self._next_epoch, self._current, self._requested = cursor.epoch, None, None
        self._named_epoch = state.get("named_epoch")
        self._kept_epoch = cursor.epoch if self._named_epoch is None else self._named_epoch
        if self._pipeline.indexed and self._pipeline.schedule.is_over_for_all_shards(cursor):
            self._move_to(cursor.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator start this epoch. An iterator in use continues.

        Keep the position of a loaded state if `epoch` was set when the state was made, or if no epoch was set and
        `epoch` is that of the state. Trainers call this method also after they have loaded a state in the middle of
        the epoch, and some trainers call it after they have taken the first batch.
        """
        self._named_epoch = epoch = validate_epoch(epoch)
        is_at_kept_position = self._current is None and self._requested is None
        if self._is_iterating:
            self._requested = _EpochRequest(epoch, self._next_epoch - 1, self.feed.state_dict())
        elif epoch != (self._kept_epoch if is_at_kept_position else self.next_epoch):
            self._requested = _EpochRequest(epoch)

    @property
    def _is_iterating(self) -> bool:
        current = self._current() if self._current is not None else None
        return current is not None and current.is_in_progress

    def _move_to(self, epoch: int) -> None:
        self.feed.set_epoch(epoch)
        self._next_epoch = self._kept_epoch = epoch
        self._current, self._requested = None, None

    def _move_to_requested(self) -> None:
        if self._requested is not None:
            self._move_to(self._requested.epoch)

    def begin(self, batches: "LoaderBatches") -> tuple[Epoch, int]:
        """Start the next epoch. Return the feed's iterator, and its number of batches or `UNKNOWN`."""
        feed = self.feed_of_rank
        self._move_to_requested()
        epoch = iter(feed)
        cursor = Cursor.from_state(feed.state_dict(), self._pipeline.fingerprint)
        self._current, self._next_epoch = weakref.ref(batches), cursor.epoch + 1
        batch_count, last_step_rows = _count_rest(self._pipeline, cursor)
        self.last_batch_signal.begin(last_step_rows)
        return epoch, batch_count

    def end_epoch(self) -> None:
        """Drop a request for the ended epoch, which the next iterator must not repeat."""
        if self._requested is not None and self._requested.epoch == self._next_epoch - 1:
            self._requested = None

    def prefetch(self) -> None:
        """Start to fill the next epoch's first batches, unless an iterator is in use."""
        feed = self.feed_of_rank
        if not self._is_iterating:
            self._move_to_requested()
            iter(feed)

    # Batches by number

    def batch_at(self, epoch: int, number: int) -> Tree:
        """Return one batch of an epoch.

        The batches before it are not read, unless the input is a stream.
        """
        is_current = self._current is not None and self._current() is self._indexed
        if self._indexed is None or not is_current or self._indexed_place != (epoch, number):
            self._seek(epoch, number)
            self._indexed = LoaderBatches(self)
        try:
            batch = next(self._indexed)
        except StopIteration:
            self._stream_end, self._indexed = (epoch, number), None
            raise
        except StateError as error:
            self._indexed = None
            raise StateError(
                f"a resumed trainer skips {number} batches of epoch {epoch}, but the stream has fewer. Without a "
                "length, a trainer counts the batches of all epochs as those of one epoch. Call .repeat() after "
                "batch(): an endless epoch can resume at any batch."
            ) from error
        self._indexed_place = epoch, number + 1
        if not self._indexed.is_in_progress:
            self._indexed = None  # drop the reference, because both objects refer to each other
        return batch

    def begin_batches(self) -> None:
        """Forget where a stream ended, because a new iteration over the batch sampler begins."""
        self._stream_end = None

    def has_batch(self, epoch: int, number: int) -> bool:
        """Return False if a stream is known to end before this batch."""
        return self._stream_end is None or self._stream_end[0] != epoch or number < self._stream_end[1]

    def _seek(self, epoch: int, number: int) -> None:
        cursor = cursor_of_batch(self.pipeline.schedule, epoch, number)
        self.feed.load_state_dict(cursor.state_dict(self._pipeline.fingerprint))
        self._next_epoch = self._kept_epoch = epoch
        self._current, self._requested = None, None


@dataclass(frozen=True, slots=True)
class _EpochRequest:
    """An epoch that the next iterator shall start, because a trainer called `set_epoch`."""

    epoch: int
    epoch_in_use: int | None = None  # epoch of the iterator that was in use at the request; None without an iterator
    state_in_use: dict[str, Any] | None = None  # state of the feed at the request

    def replaces(self, state: dict[str, Any]) -> bool:
        """Return whether the loader is at the start of the requested epoch, not at `state`."""
        return self.epoch_in_use is None or (self.epoch_in_use != self.epoch and self.state_in_use == state)


class LoaderBatches(Iterator[Tree]):
    """An iterator that starts an epoch when the trainer requests the first batch.

    It cannot start earlier: trainers create iterators before they call `set_epoch`, and iterators that they never use.
    """

    __slots__ = ("__weakref__", "_batches_left", "_epoch", "_loader_feed")

    def __init__(self, loader_feed: LoaderFeed) -> None:
        self._loader_feed = loader_feed
        self._epoch: Epoch | None = None
        self._batches_left = UNKNOWN

    @property
    def is_in_progress(self) -> bool:
        """True from the request of the first batch until the last batch was received."""
        return self._epoch is not None and self._batches_left != 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tree:
        if self._epoch is None:
            self._epoch, self._batches_left = self._loader_feed.begin(self)
        try:
            batch = next(self._epoch)
        except StopIteration:
            self._batches_left = 0
            self._loader_feed.last_batch_signal.end()
            self._loader_feed.end_epoch()
            raise
        self._batches_left -= 1
        if self._batches_left == 0:
            # Trainers count batches and request none after the last batch, so the feed would not notice the end.
            next(self._epoch, None)
            self._loader_feed.end_epoch()
            self._loader_feed.last_batch_signal.end_of_dataloader = True
        return batch


class LastBatchSignal:
    """Tells Accelerate which batch is the last one of an epoch.

    `GradientState` of Accelerate reads the two public attributes. At the last batch, Accelerate ends an accumulation of
    gradients. `gather_for_metrics` uses `remainder` to remove rows that other loaders repeat to fill the last step.
    """

    def __init__(self) -> None:
        self.end_of_dataloader = False  # True from the last batch of an epoch until the next iterator begins
        self.remainder = UNKNOWN  # rows of all ranks in an incomplete last step, or 0
        self._gradient_state: Any = None

    def begin(self, last_step_rows: int) -> None:
        """Register this object with Accelerate, if the script uses Accelerate."""
        self.end()
        self.end_of_dataloader, self.remainder = False, last_step_rows
        accelerate_state = sys.modules.get("accelerate.state")
        if accelerate_state is not None:
            self._gradient_state = accelerate_state.GradientState()
            self._gradient_state._add_dataloader(self)

    def end(self) -> None:
        """Remove this object from the loaders that Accelerate iterates."""
        if self._gradient_state is not None:
            self._gradient_state._remove_dataloader(self)
            self._gradient_state = None


def cursor_of_batch(schedule: Schedule, epoch: int, number: int) -> Cursor:
    """Return the cursor before a batch; `number` is the number of batches before it."""
    passes, batches = divmod(number, schedule.pass_batches or ENDLESS)
    return schedule.advance(Cursor(epoch=epoch, passes=passes, batches=number - batches), batches)


def _count_rest(pipeline: Pipeline, cursor: Cursor) -> tuple[int, int]:
    """Return the batches left after a cursor, and the rows of an incomplete last step.

    The rows are those of all ranks, or 0 if the last step is full. Both numbers are `UNKNOWN` if the epoch is endless,
    or if the length of the input is unknown.
    """
    schedule: Schedule = pipeline.schedule
    if not pipeline.indexed or schedule.batches is None:
        return UNKNOWN, UNKNOWN
    groups = list(schedule.groups(cursor, ENDLESS))
    if not groups:
        return 0, 0
    last_start = schedule.advance(groups[-1].cursor, groups[-1].batches - 1).position
    last_rows, step_rows = schedule.pass_rows - last_start, schedule.batch_rows * schedule.shard_count
    return sum(group.batches for group in groups), last_rows if last_rows < step_rows else 0
