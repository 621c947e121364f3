"""The feed of a loader, which follows the rank and the epoch of the trainer.

A trainer may start the ranks after the script has made its loaders. So the loader builds its feed when it is used, and
looks for a rank again at the start of each epoch. A state does not depend on the rank, so the feed keeps its position.
"""

import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

from forebay.core.spec import Tree
from forebay.errors import FeedClosedError
from forebay.feed.epoch import Epoch
from forebay.feed.feed import Feed
from forebay.order.schedule import ENDLESS, Cursor, Schedule
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.ranks import Rank, detect_rank

__all__ = ["LastBatchSignal", "LoaderBatches", "LoaderFeed", "cursor_of_batch"]

UNKNOWN = -1  # number of remaining batches, or of rows, if the length of the input is unknown


class LoaderFeed:
    """The feed of a loader, with the number of its next epoch."""

    def __init__(self, pipeline: Pipeline, options: FeedOptions) -> None:
        self._pipeline, self.options = pipeline, options
        # `shard(index, count)` has decided which rows this process gets. Otherwise the rank decides.
        self._shards_by_rank = isinstance(pipeline.rank, Rank) or not pipeline.has_shard
        self._feed: Feed | None = None
        self._is_closed = False
        self._next_epoch = 0  # the epoch that the next iterator starts or continues
        # The iterator that began last; None after a change of position. A strong reference would be a cycle.
        self._current: weakref.ref[LoaderBatches] | None = None
        self._indexed: LoaderBatches | None = None  # the iterator of `batch_at`
        self._indexed_place = (0, 0)  # epoch and number of its next batch
        self.last_batch_signal = LastBatchSignal()

    # The feed

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline on the rank of this process."""
        self._follow_rank()
        return self._pipeline

    @property
    def feed(self) -> Feed:
        """The feed, with the rank at the last start of an epoch."""
        if self._is_closed:
            raise FeedClosedError("the loader was closed: make a new one with pipeline.feed('loader').")
        if self._feed is None:
            self._feed = Feed(self.pipeline, self.options)
        return self._feed

    @property
    def is_built(self) -> bool:
        return self._feed is not None

    @property
    def feed_of_rank(self) -> Feed:
        """The feed, with the rank that this process has now."""
        self._follow_rank()
        return self.feed

    def _follow_rank(self) -> None:
        """Use the rank that this process has now. Keep the position of the feed."""
        rank = detect_rank() if self._shards_by_rank else self._pipeline.rank
        if self._pipeline.rank == rank:
            return
        assert isinstance(rank, Rank)
        self._pipeline = replace(self._pipeline, rank=rank, shard_index=rank.index, shard_count=rank.count)
        if self._feed is not None and not self._is_closed:
            state = self._feed.state_dict()
            self._feed.close()
            self._feed = Feed(self._pipeline, self.options)
            if self._current is None:
                self._feed.load_state_dict(state)
            else:  # an iterator began, so the next one starts another epoch
                self._move_to(self._next_epoch)

    def close(self) -> None:
        self._is_closed = True
        if self._feed is not None:
            self._feed.close()

    # The position

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iterator starts or continues."""
        return self._next_epoch

    def state_dict(self) -> dict[str, Any]:
        return self.feed.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iterator start at the position of a state.

        If the epoch of the state is over, the iterator starts the next epoch.
        """
        self.feed_of_rank.load_state_dict(state)
        cursor = Cursor.from_state(state, self._pipeline.fingerprint)
        self._next_epoch, self._current = cursor.epoch, None
        if self._pipeline.schedule.batches and _count_rest(self._pipeline, cursor)[0] == 0:
            self._move_to(cursor.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator start this epoch.

        If the position is already inside of this epoch, keep the position: trainers also call this method after they
        have loaded a state in the middle of the epoch.
        """
        if epoch != self._next_epoch:
            self._move_to(epoch)

    def _move_to(self, epoch: int) -> None:
        self.feed.set_epoch(epoch)
        self._next_epoch, self._current = epoch, None

    def begin(self, batches: "LoaderBatches") -> tuple[Epoch, int]:
        """Start the next epoch for an iterator. Return it with the number of its batches."""
        epoch = iter(self.feed_of_rank)
        cursor = Cursor.from_state(self.feed.state_dict(), self._pipeline.fingerprint)
        self._current, self._next_epoch = weakref.ref(batches), cursor.epoch + 1
        batch_count, last_step_rows = _count_rest(self._pipeline, cursor)
        self.last_batch_signal.begin(last_step_rows)
        return epoch, batch_count

    def prefetch(self) -> None:
        """Let worker threads fill the first batches, unless an iterator is in use."""
        feed = self.feed_of_rank
        current = self._current() if self._current is not None else None
        if current is None or not current.is_in_progress:
            iter(feed)

    def batch_at(self, epoch: int, number: int) -> Tree:
        """Return one batch of an epoch.

        The batches before it are not read, unless the input is a stream.
        """
        is_current = self._current is not None and self._current() is self._indexed
        if self._indexed is None or not is_current or self._indexed_place != (epoch, number):
            self._seek(epoch, number)
            self._indexed = LoaderBatches(self)
        batch = next(self._indexed)
        self._indexed_place = epoch, number + 1
        if not self._indexed.is_in_progress:
            self._indexed = None  # it refers to this object, and a cycle would delay the release of both
        return batch

    def _seek(self, epoch: int, number: int) -> None:
        cursor = cursor_of_batch(self.pipeline.schedule, epoch, number)
        self.feed.load_state_dict(cursor.state_dict(self._pipeline.fingerprint))
        self._next_epoch, self._current = epoch, None


class LoaderBatches(Iterator[Tree]):
    """An iterator over one epoch, which starts when its first batch is requested.

    Trainers create iterators before they name the epoch, and iterators that they never use.
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
            raise
        self._batches_left -= 1
        if self._batches_left == 0:
            # Trainers count batches and do not request one after the last, so the feed would not see the end.
            next(self._epoch, None)
            self._loader_feed.last_batch_signal.end_of_dataloader = True
        return batch


class LastBatchSignal:
    """Tells Accelerate which batch is the last one of an epoch.

    `GradientState` of Accelerate reads the two public attributes. At the last batch, Accelerate ends an accumulation of
    gradients, and `gather_for_metrics` cuts off padding, of which a feed has none.
    """

    def __init__(self) -> None:
        self.end_of_dataloader = False  # True from the last batch of an epoch until the next iterator begins
        self.remainder = UNKNOWN  # rows of all ranks in an incomplete last step, or 0
        self._gradient_state: Any = None

    def begin(self, last_step_rows: int) -> None:
        """Register with Accelerate, if the script uses it."""
        self.end()
        self.end_of_dataloader, self.remainder = False, last_step_rows
        accelerate_state = sys.modules.get("accelerate.state")
        if accelerate_state is not None:
            self._gradient_state = accelerate_state.GradientState()
            self._gradient_state._add_dataloader(self)

    def end(self) -> None:
        """Remove this loader from those that Accelerate iterates."""
        if self._gradient_state is not None:
            self._gradient_state._remove_dataloader(self)
            self._gradient_state = None


def cursor_of_batch(schedule: Schedule, epoch: int, number: int) -> Cursor:
    """Return the cursor before a batch of a complete epoch."""
    passes, batches = divmod(number, schedule.pass_batches or ENDLESS)
    return schedule.advance(Cursor(epoch=epoch, passes=passes, batches=number - batches), batches)


def _count_rest(pipeline: Pipeline, cursor: Cursor) -> tuple[int, int]:
    """Return the batches after a cursor, and the rows of an incomplete last step.

    The batches count to the end of the cursor's epoch. The rows are 0 if the last step is full. Both are `UNKNOWN` if
    the length of the input is unknown.
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
