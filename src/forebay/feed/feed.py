"""The feed that the user iterates: epochs, state, statistics, explanation."""

import operator
import threading
import time
import weakref
from types import TracebackType
from typing import Any, NoReturn, Self

from forebay.core.spec import ArraySpec, Structure, Tree
from forebay.errors import FeedClosedError, FeedError, PipelineError, StateError
from forebay.feed.build import build_feed
from forebay.feed.runner import Runner
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Group, Schedule
from forebay.pipeline.explain import explain, summarise
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.pipeline.ranks import Rank, validate_equal_steps
from forebay.pipeline.request import resolve_request
from forebay.sources.streams.batches import BatchStream

__all__ = ["Epoch", "Feed", "Progress"]


class Feed:
    """Batches of a pipeline as arrays of a framework. Each `iter()` starts the next epoch.

    >>> import numpy as np, forebay as fb
    >>> with fb.from_arrays({"x": np.arange(6)}).batch(3).feed("numpy") as feed:
    ...     [batch["x"].tolist() for batch in feed]
    [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, pipeline: Pipeline, options: FeedOptions) -> None:
        parts = build_feed(resolve_request(pipeline, options))
        self._pipeline, self._schedule, self._fingerprint = pipeline, pipeline.schedule, pipeline.fingerprint
        self._plan, self._runner, self._recorder = parts.plan, parts.runner, parts.recorder
        self._hand_off, self._device_transforms = parts.hand_off, parts.device_transforms
        self._start: Cursor | None = Cursor()  # where the next iter() begins; None: at the next epoch
        self._progress = Progress(Cursor(), self._schedule)
        self._current: Epoch | None = None  # only for next(feed)
        # An epoch takes a group and hands it off under this lock, so that nothing reuses its slot in between.
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, Runner.close, parts.runner)

    # Description

    @property
    def plan(self) -> Plan:
        """How this feed runs."""
        return self._plan

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """Specs of one row of a batch, leaf by leaf."""
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
                f"the output of {plan_input.device_transforms[-1]} on the device is unknown before the first batch. "
                "Take a batch and look at it."
            )
        return plan_input.output

    @property
    def batch_rows(self) -> int | None:
        """Rows of a full batch; None for ready-made batches."""
        return self._pipeline.batching.rows if self._pipeline.batching else None

    @property
    def drops_remainder(self) -> bool:
        """True if every batch is full."""
        return self._pipeline.batching.drop_remainder if self._pipeline.batching else False

    @property
    def batches(self) -> int | None:
        """Batches of an epoch; None if unknown or endless."""
        return self._plan.input.batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("this feed has no length: its source is a stream, or it repeats without end.")
        return self.batches

    # Iteration

    def __iter__(self) -> "Epoch":
        """Start the next epoch.

        This ends the older iterator of the feed, which raises an error on its next use.
        """
        if not self._finalizer.alive:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")
        start, follows_last = self._next_start(), self._progress.finished and self._start is None
        self._progress.end()
        runner = self._runner
        generation = runner.continue_epoch() if follows_last and runner.continues else runner.restart(start)
        self._start, self._current, self._progress = None, None, Progress(start, self._schedule)
        return Epoch(self, self._progress, generation)

    def __next__(self) -> Tree:
        """Return the next batch, of the current epoch or of a new one."""
        if self._current is None or self._progress.over:
            self._current = iter(self)
        return next(self._current)

    def _next_start(self) -> Cursor:
        if self._start is not None:
            return self._start
        return Cursor(epoch=self._progress.cursor.epoch + 1)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last received batch, as a small JSON dict.

        `load_state_dict` on a feed of an equal pipeline continues from there, exactly.
        """
        cursor = self._next_start() if self._start is not None or self._progress.finished else self._progress.cursor
        return cursor.state_dict(self._fingerprint)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `iter()` begin where the state was taken.

        The pipeline must have the same rows in the same order. Shards, batch size and maps may differ.
        """
        cursor = Cursor.from_state(state, self._fingerprint)
        if self._pipeline.indexed and cursor.position > self._schedule.pass_rows:
            raise StateError(
                f"the state is damaged: position {cursor.position} is beyond the {self._schedule.pass_rows} rows."
            )
        if self._pipeline.indexed and isinstance(self._pipeline.rank, Rank):
            validate_equal_steps(self._pipeline.rank, self._schedule, cursor.position)
        self._begin_at(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` start this epoch from its beginning."""
        try:
            number = operator.index(epoch)
        except TypeError:
            number = -1
        if number < 0:
            raise PipelineError(f"set_epoch({epoch!r}): an epoch is a whole number from 0 on.")
        self._begin_at(Cursor(epoch=number))

    def _begin_at(self, cursor: Cursor) -> None:
        self._progress.end()
        self._start = cursor

    # Reports

    def stats(self) -> dict[str, Any]:
        """Return numbers of the run: batches, bytes, waiting time, and the slowest stage."""
        counters = self._pipeline.source.counters()
        return summarise(self._plan, self._recorder.capture()) | ({"source": counters} if counters else {})

    def explain(self) -> str:
        """Explain how this feed runs and why, with what was measured so far."""
        capture = self._recorder.capture()
        decisions = self._pipeline.source.decisions()
        capture["notes"] |= {decision.name: [decision.choice, decision.why] for decision in decisions}
        return explain(self._plan, capture)

    # The end

    def close(self) -> None:
        """End all threads and release the memory. Batches that you still hold stay valid."""
        self._finalizer()
        self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a feed has threads and memory, so it can be neither pickled nor copied. Send the pipeline and call feed() "
            "in the other process; use state_dict() to continue there."
        )

    def __repr__(self) -> str:
        plan_input = self._plan.input
        length = "?" if self.batches is None else self.batches
        return f"Feed({plan_input.framework} on {plan_input.engine}, {length} batches of {plan_input.batch_rows} rows)"


class Progress:
    """The progress of an epoch.

    The feed refers to this object and not to the `Epoch`: an `Epoch` refers to the feed, and a cycle would delay its
    release.
    """

    __slots__ = ("_batches", "_group", "_schedule", "finished", "over", "ready")

    def __init__(self, start: Cursor, schedule: Schedule) -> None:
        self._group, self._batches, self._schedule = start, 0, schedule
        self.ready: list[Any] = []  # batches of the current group that were not received, in reverse order for pop()
        self.finished = False  # all batches were received
        self.over = False  # finished, failed, or ended by the feed

    @property
    def cursor(self) -> Cursor:
        """The position after the last received batch."""
        return self._schedule.advance(self._group, self._batches - len(self.ready))

    def begin_group(self, cursor: Cursor, batches: list[Any]) -> None:
        self._group, self._batches = cursor, len(batches)
        self.ready = batches

    def fail(self, batch: Any) -> None:
        """Put the batch back and end the epoch; it does not count as received."""
        if not self.over:
            self.ready.append(batch)
            self.end()

    def end(self) -> None:
        """End the epoch. Batches that were not received do not count."""
        self._group, self._batches = self.cursor, 0
        self.ready, self.over = [], True


class Epoch:
    """An iterator over one epoch of a feed.

    Several threads may share it; each batch goes to one of them.
    """

    def __init__(self, feed: Feed, progress: Progress, generation: int) -> None:
        self._feed = feed  # keeps the feed alive during the iteration
        self._progress, self._generation = progress, generation
        self._runner, self._recorder = feed._runner, feed._recorder
        self._hand_off, self._device_transforms = feed._hand_off.hand_off, feed._device_transforms
        self._build = feed._plan.input.structure.builder()
        self._row_nbytes = sum(spec.nbytes for spec in feed._plan.input.specs)
        self._shard_index = feed._pipeline.shard_index
        self._is_host = not feed._runner.engine.is_device  # on the host, a batch needs no further work when it is taken
        self._lock = feed._lock
        self._began, self._nbytes = time.perf_counter(), 0
        self._last = feed._pipeline.indexed and feed._schedule.is_over(progress.cursor)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tree:
        while True:
            try:
                batch = self._progress.ready.pop()  # atomic, so most batches need no lock
            except IndexError:
                pass  # leave the handler first: later errors must not have this one as their context
            else:
                return batch if self._is_host else self._take_on_device(batch)
            with self._lock:
                if not self._progress.ready:
                    self._advance()

    @property
    def spent(self) -> bool:
        """True if the last batch was taken, and no further batch was requested yet."""
        return (self._last or self._has_received_length) and not self._progress.ready and not self._progress.over

    @property
    def _has_received_length(self) -> bool:
        """True if the loader has a length and this shard has received all its batches."""
        pipeline, cursor = self._feed._pipeline, self._progress.cursor
        length = pipeline.source.length if isinstance(pipeline.source, BatchStream) else None
        received_all = length is not None and cursor.position + self._shard_index >= length
        return received_all and cursor.passes + 1 == pipeline.passes

    def close(self) -> None:
        """End the epoch early. The next `iter(feed)` starts the following epoch."""
        self._progress.end()

    def _advance(self) -> None:
        """Take the next group of batches."""
        progress = self._progress
        if progress.finished:
            raise StopIteration
        if progress.over:
            raise FeedError(
                "this iteration has ended: by an error, or because the feed was closed, resumed or iterated again. Use "
                "the newer iterator. After an error, feed.load_state_dict(feed.state_dict()) continues after the last "
                "received batch."
            )
        try:
            slot = None if self._last else self._runner.take(self._generation)
            if slot is not None:
                self._begin_group(slot)
                return
        except BaseException:
            progress.end()
            raise
        progress.end()
        progress.finished = True
        self._recorder.add_span("epoch", time.perf_counter() - self._began, nbytes=self._nbytes)
        raise StopIteration

    def _take_on_device(self, batch: tuple[Slot, list[Any], tuple[int, ...]]) -> Tree:
        """Hand out a batch on a device, and apply the device transforms."""
        slot, leaves, key = batch
        try:
            self._runner.engine.hand_out(slot.memory)
            return self._build(leaves) if self._device_transforms is None else self._device_transforms(leaves, key)
        except BaseException:
            self._progress.fail(batch)
            raise

    def _key(self, group: Group, batch: int) -> tuple[int, ...]:
        """Return the key that seeds the random numbers of a batch, as on the host."""
        cursor = self._feed._schedule.advance(group.cursor, batch)
        return cursor.epoch, cursor.passes, cursor.position + self._shard_index

    def _begin_group(self, slot: Slot) -> None:
        """Hand off all batches of a group at once, which halves the cost per batch."""
        group, full = slot.group, slot.layout.batch_rows
        assert group is not None
        batches = slot.batches[: group.batches]
        short = group.rows - (group.batches - 1) * full
        if short < full:
            batches[-1] = [root[:short] for root in batches[-1]]
        build, hand_off = self._build, self._hand_off
        ready: list[Any]
        if self._is_host:
            ready = [build(hand_off(roots)) for roots in reversed(batches)]
        else:  # the device transforms run later, on the stream of the thread that takes the batch
            has_transforms = self._device_transforms is not None
            keys = [self._key(group, number) if has_transforms else () for number in range(len(batches))]
            ready = [(slot, hand_off(roots), key) for roots, key in zip(batches, keys, strict=True)][::-1]
        self._recorder.add_span("given", count=group.batches, nbytes=group.rows * self._row_nbytes)
        if self._progress.over:
            raise FeedError("this iteration ended while it waited. Use the newer iterator.")
        self._last = group.ends_epoch
        self._nbytes += group.rows * self._row_nbytes
        self._progress.begin_group(group.cursor, ready)
