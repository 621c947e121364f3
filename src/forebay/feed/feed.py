"""`Feed`, the object that the user iterates: epochs, state, statistics, explanation."""

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, Self

from forebay.core.recorder import Recorder
from forebay.core.spec import ArraySpec, Structure, Tree
from forebay.errors import FeedClosedError, FeedError
from forebay.feed.build import FeedParts, build_feed, plan_version_of, rebuild_feed
from forebay.feed.epoch import Epoch, EpochFeed, Progress
from forebay.feed.reports import FeedReports, RegularReports
from forebay.feed.runner import Runner
from forebay.order.schedule import Cursor
from forebay.pipeline.familiar_words import refuse_index, refuse_keras, reject_attribute
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.pipeline.ranks import Rank, refuse_later_rank
from forebay.pipeline.request import resolve_request
from forebay.pipeline.validate import validate_cursor, validate_epoch, warn_if_random_numbers_differ

__all__ = ["Feed"]


class Feed(FeedReports):
    """Batches of a pipeline as arrays of a framework.

    Each loop over a feed is the next epoch.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> with fb.from_arrays({"x": np.arange(6)}).batch(3).feed("numpy") as feed:
        ...     [batch["x"].tolist() for batch in feed]
        [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(
        self,
        pipeline: Pipeline,
        options: FeedOptions,
        recorder: Recorder | None = None,
        reports: RegularReports | None = None,
    ) -> None:
        """Plan the feed and build its parts.

        If the feed replaces an earlier feed, `recorder` and `reports` are those of the earlier feed.
        """
        self._pipeline, self._schedule, self._fingerprint = pipeline, pipeline.schedule, pipeline.fingerprint
        self._options, self._recorder = options, recorder or Recorder()
        self._use_parts(build_feed(resolve_request(pipeline, options), self._recorder))
        self._reports, self._has_checked_rank = reports or RegularReports(), False
        self._requested_cursor: Cursor | None = Cursor()  # start of the next iter(); None means `Progress.next_start`
        self._progress = Progress(Cursor(), self._schedule, self._recorder)
        # The iterator of next(feed). Each `Epoch` refers to its feed, and the feed refers only to this one. So no other
        # `Epoch` is in a reference cycle.
        self._current_epoch: Epoch | None = None
        self._lock = threading.Lock()

    def _use_parts(self, parts: FeedParts) -> None:
        self._parts, self._plan, self._runner, self._plan_version = parts, parts.plan, parts.runner, parts.plan_version
        self._finalizer = weakref.finalize(self, Runner.close, parts.runner)

    @property
    def plan(self) -> Plan:
        """The plan of this feed: threads, slots and bytes."""
        return self._plan

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """Shape and dtype of one row of each leaf of a batch."""
        return self._output[0]

    @property
    def structure(self) -> Structure:
        """How the fields of a batch are nested."""
        return self._output[1]

    @property
    def _output(self) -> tuple[tuple[ArraySpec, ...], Structure]:
        plan_input = self._plan.input
        if plan_input.output is None:
            raise FeedError(
                "the specs of this feed are unknown, because a map runs on the device (the last transform there is "
                f"{plan_input.device_transforms[-1]}). Take a batch and look at its arrays."
            )
        return plan_input.output

    @property
    def batch_rows(self) -> int | None:
        """Rows of a full batch; None for ready-made batches, and with `batch(tokens=)`."""
        return self._pipeline.batching.rows if self._pipeline.batching and not self._pipeline.batching.tokens else None

    @property
    def drops_remainder(self) -> bool:
        """True if the feed drops a last batch that is not full."""
        return self._pipeline.batching.drop_remainder if self._pipeline.batching else False

    @property
    def batches(self) -> int | None:
        """Number of batches in an epoch; None if unknown or endless."""
        return self._plan.input.batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError(
                "this feed has no length: its source is a stream, or it repeats without end. "
                "Count the batches in the loop."
            )
        return self.batches

    def __iter__(self) -> "Epoch":
        """Start the next epoch. If no batch of the current epoch was requested, start the current one again.

        An unfinished earlier iterator of the feed ends: its next use raises FeedError.
        """
        self._refuse_closed()
        if not self._has_checked_rank:  # a script may start its ranks after it has made the feed
            rank = self._pipeline.rank if isinstance(self._pipeline.rank, Rank) else None
            refuse_later_rank(rank, has_shard=self._pipeline.has_shard)
            self._has_checked_rank = True
        progress, plan_version, start = self._progress, plan_version_of(self._pipeline), self.next_cursor
        is_outdated = self._plan_version != plan_version
        if is_outdated:  # for example, because a cache now has all rows
            new_parts = rebuild_feed(self._pipeline, self._options, self._recorder)
            if new_parts is None:
                self._plan_version = plan_version  # so that the next epoch does not try again
            else:
                self._finalizer()
                self._use_parts(new_parts)
        runner = self._runner
        was_filled = progress.is_unused or (progress.is_finished and runner.fills_next_epoch)
        can_continue = was_filled and start == progress.next_start and not is_outdated
        progress.end()
        generation = runner.continue_epoch() if can_continue else runner.restart(start)
        self._requested_cursor, self._current_epoch = None, None
        self._progress = Progress(start, self._schedule, self._recorder)
        feed = EpochFeed(self._pipeline, self._parts, self._reports, self.stats, self._lock)
        return Epoch(feed, self._progress, generation)

    @property
    def next_cursor(self) -> Cursor:
        """The position at which the next `iter()` starts."""
        return self._requested_cursor or self._progress.next_start

    def __next__(self) -> Tree:
        """Return the next batch. After StopIteration or an error, start the next epoch."""
        if self._current_epoch is None or self._progress.is_over:
            self._current_epoch = iter(self)
        return next(self._current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last received batch, as a small dict for JSON.

        If you pass the dict to `load_state_dict` of a feed of an equal pipeline, that feed continues with the next
        batch.
        """
        is_iterating = self._requested_cursor is None and not self._progress.is_finished
        cursor = self._progress.cursor if is_iterating else self.next_cursor
        return cursor.state_dict(self._fingerprint)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next `iter()` begin at the position of a state.

        The pipeline must have the same rows in the same order. Shards, batch size and maps may differ.

        Args:
            state: A state from `state_dict`.
        """
        self._refuse_closed()
        cursor = Cursor.from_state(state, self._fingerprint)
        validate_cursor(self._pipeline, cursor, self._plan.input.split)
        warn_if_random_numbers_differ(self._pipeline, state)
        self._begin_at(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` start an epoch from its beginning.

        Args:
            epoch: The number of the epoch, from 0.
        """
        self._refuse_closed()
        self._begin_at(Cursor(epoch=validate_epoch(epoch)))

    def _refuse_closed(self) -> None:
        if not self._finalizer.alive:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")

    def _begin_at(self, cursor: Cursor) -> None:
        self._progress.end()
        self._requested_cursor = cursor

    def close(self) -> None:
        """End all threads and free the memory. Batches that you still hold stay valid."""
        self._reports.run_due(self.stats, at_end=True)
        self._finalizer()
        self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a feed has threads and memory, so it can be neither pickled nor copied. Send the pipeline and call feed() "
            "in the other process; use state_dict() to continue there."
        )

    def __getitem__(self, index: Any) -> NoReturn:
        refuse_index("a feed", index)

    def __format__(self, format_spec: str) -> str:
        refuse_keras(f"a feed to {self._plan.input.framework}", sys._getframe(1))
        return format(str(self), format_spec)

    if not TYPE_CHECKING:  # with this method, type checkers would report no missing attribute

        def __getattr__(self, name: str) -> Any:
            return reject_attribute(self, name, "a feed")

    def __repr__(self) -> str:
        plan_input = self._plan.input
        length = "?" if self.batches is None else self.batches
        closed = "" if self._finalizer.alive else ", closed"
        size = plan_input.batch_size
        return f"Feed({plan_input.framework} on {plan_input.engine}, {length} batches of {size}{closed})"
