"""A running plan: the iterator the user holds. Epochs, state, stats, explain."""

import operator
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from forebay.core.decision import Reason
from forebay.core.engine import Engine
from forebay.core.spec import ArraySpec, Structure, Tree
from forebay.errors import FeedClosedError, FeedError, PipelineError, StateError
from forebay.feed.build import build
from forebay.feed.runner import Runner
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Group, Schedule
from forebay.pipeline.explain import explain, summarise
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.pipeline.ranks import Rank, check_steps
from forebay.pipeline.request import ask
from forebay.sources.streams.batches import BatchStream

__all__ = ["Epoch", "Feed", "Progress"]


class Feed:
    """Batches of a pipeline, in a framework's own arrays; each `iter()` starts the next epoch.

    >>> import numpy as np, forebay as fb
    >>> with fb.from_arrays({"x": np.arange(6)}).batch(3).feed("numpy") as feed:
    ...     [batch["x"].tolist() for batch in feed]
    [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        to: str = "numpy",
        device: str | Engine = "auto",
        resident: str = "auto",
        host_bytes: int | str = "256MiB",
        device_bytes: int | str | None = None,
    ) -> None:
        built = build(
            ask(pipeline, to=to, device=device, resident=resident, host_bytes=host_bytes, device_bytes=device_bytes)
        )
        self._pipeline, self._schedule, self._fingerprint = pipeline, pipeline.schedule, pipeline.fingerprint
        self._plan, self._runner, self._recorder = built.plan, built.runner, built.recorder
        self._hand_off, self._after = built.hand_off, built.after
        self._start: Cursor | None = Cursor()  # where the next iter() begins, where that is not the next epoch
        self._progress = Progress(Cursor(), self._schedule)
        self._current: Epoch | None = None  # only for next(feed)
        self._lock = threading.Lock()  # a group is taken and handed off under it, so that nothing reuses it in between
        self._end = weakref.finalize(self, Runner.close, built.runner)

    # What is fed

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """One row of what is given to the user, leaf by leaf."""
        return self._given[0]

    @property
    def structure(self) -> Structure:
        return self._given[1]

    @property
    def _given(self) -> tuple[tuple[ArraySpec, ...], Structure]:
        demand = self._plan.demand
        if demand.given is None:
            raise FeedError(
                f"what {demand.afterwards[-1]} returns on the device is known only when a batch was taken: take one."
            )
        return demand.given

    @property
    def batch_rows(self) -> int | None:
        """Rows of a full batch; None where batches come ready-made."""
        return self._pipeline.batching.rows if self._pipeline.batching else None

    @property
    def drops_remainder(self) -> bool:
        """Whether every batch is full."""
        return self._pipeline.batching.drop_remainder if self._pipeline.batching else False

    @property
    def batches(self) -> int | None:
        """Batches of an epoch; None when unknown or endless."""
        return self._plan.demand.batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("this feed has no length: its source is a stream, or it repeats for ever.")
        return self.batches

    # Iterating

    def __iter__(self) -> "Epoch":
        """Start the next epoch. An iterator of this feed that is still about ends here and says so when it is used."""
        if not self._end.alive:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")
        start, went_on = self._next_start(), self._progress.finished and self._start is None
        self._progress.end()
        generation = self._runner.go_on() if went_on and self._runner.goes_on else self._runner.restart(start)
        self._start, self._current, self._progress = None, None, Progress(start, self._schedule)
        return Epoch(self, self._progress, generation)

    def __next__(self) -> Tree:
        """The next batch of the epoch under way; starts one where none is."""
        if self._current is None or self._progress.over:
            self._current = iter(self)
        return next(self._current)

    def _next_start(self) -> Cursor:
        if self._start is not None:
            return self._start
        return Cursor(epoch=self._progress.cursor.epoch + 1)

    # State

    def state_dict(self) -> dict[str, Any]:
        """What was received so far, as small JSON; `load_state_dict` on an equal pipeline goes on from there."""
        cursor = self._next_start() if self._start is not None or self._progress.finished else self._progress.cursor
        return cursor.state_dict(self._fingerprint)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `iter()` start where the state was taken; shards, batch size and maps may differ."""
        cursor = Cursor.from_state(state, self._fingerprint)
        if self._pipeline.indexed and cursor.position > self._schedule.pass_rows:
            raise StateError(
                f"the state is damaged: position {cursor.position} lies past the {self._schedule.pass_rows} rows."
            )
        if self._pipeline.indexed and isinstance(self._pipeline.rank, Rank):
            check_steps(self._pipeline.rank, self._schedule, cursor.position)
        self._begin_at(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` start this epoch, from its beginning."""
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

    # Telling

    def stats(self) -> dict[str, Any]:
        """How long the consumer waited, and which stage is the slowest."""
        counts: dict[str, int] = getattr(self._pipeline.source, "counts", dict)()
        return summarise(self._plan, self._recorder.capture()) | ({"source": counts} if counts else {})

    def explain(self) -> str:
        """How this feed runs and why, and how it went so far."""
        capture = self._recorder.capture()
        told: Sequence[Reason] = getattr(self._pipeline.source, "reasons", tuple)()
        capture["notes"] |= {reason.name: [reason.choice, reason.why] for reason in told}
        return explain(self._plan, capture)

    # Ending

    def close(self) -> None:
        """End every thread and give the memory back; batches that are still held stay valid."""
        self._end()
        self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a feed is threads and memory at work, which can be neither pickled nor copied: send the pipeline and call "
            "feed() over there, and keep state_dict() to go on from."
        )

    def __repr__(self) -> str:
        demand = self._plan.demand
        length = "?" if self.batches is None else self.batches
        return f"Feed({demand.target} on {demand.engine}, {length} batches of {demand.batch_rows} rows)"


class Progress:
    """How far an epoch has come. The feed holds this, not the epoch: the epoch holds the feed."""

    __slots__ = ("_batches", "_group", "_schedule", "finished", "over", "ready")

    def __init__(self, start: Cursor, schedule: Schedule) -> None:
        self._group, self._batches, self._schedule = start, 0, schedule
        self.ready: list[Any] = []  # batches of the current group that were not received yet, last first
        self.finished = False  # read to its end
        self.over = False  # finished, failed, or ended from outside

    @property
    def cursor(self) -> Cursor:
        """What was received: not a batch more, not a batch less."""
        return self._schedule.advanced(self._group, self._batches - len(self.ready))

    def begin_group(self, cursor: Cursor, batches: list[Any]) -> None:
        self._group, self._batches = cursor, len(batches)
        self.ready = batches

    def fail(self, batch: Any) -> None:
        """This one could not be given: it was not received, and nothing more is."""
        if not self.over:
            self.ready.append(batch)
            self.end()

    def end(self) -> None:
        """Nothing more is received; what was not, is not counted."""
        self._group, self._batches = self.cursor, 0
        self.ready, self.over = [], True


class Epoch:
    """One epoch of a feed. Safe to call from several threads: each batch goes to one of them."""

    def __init__(self, feed: Feed, progress: Progress, generation: int) -> None:
        self._feed = feed  # keeps it running for as long as somebody iterates
        self._progress, self._generation = progress, generation
        self._runner, self._recorder = feed._runner, feed._recorder
        self._hand_off, self._after = feed._hand_off.hand_off, feed._after
        self._build = feed._plan.demand.structure.builder()
        self._row_nbytes = sum(spec.nbytes for spec in feed._plan.demand.specs)
        self._shard_index = feed._pipeline.shard_index
        self._plain = not feed._runner.engine.far  # nothing to be done as a batch is taken
        self._lock = feed._lock
        self._began, self._nbytes = time.perf_counter(), 0
        self._last = feed._pipeline.indexed and feed._schedule.is_over(progress.cursor)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tree:
        while True:
            try:
                batch = self._progress.ready.pop()  # atomic, so that no lock is taken for most batches
            except IndexError:
                pass  # left before anything else is raised, or every error would seem to come of this one
            else:
                return batch if self._plain else self._taken(batch)
            with self._lock:
                if not self._progress.ready:
                    self._advance()

    @property
    def spent(self) -> bool:
        """Whether the last batch was taken, and nobody has asked for one beyond it yet."""
        return (self._last or self._counted_out) and not self._progress.ready and not self._progress.over

    @property
    def _counted_out(self) -> bool:
        """Whether a loader has given this shard as many batches as it says it has."""
        pipeline, cursor = self._feed._pipeline, self._progress.cursor
        length = pipeline.source.length if isinstance(pipeline.source, BatchStream) else None
        given = length is not None and cursor.position + self._shard_index >= length
        return given and cursor.passes + 1 == pipeline.passes

    def close(self) -> None:
        """Leave the epoch before its end; the next `iter(feed)` starts the one after it."""
        self._progress.end()

    def _advance(self) -> None:
        """Go on to the next group of batches."""
        progress = self._progress
        if progress.finished:
            raise StopIteration
        if progress.over:
            raise FeedError(
                "this iteration ended by an error, or when the feed was closed, resumed or iterated anew: use the "
                "newer iterator. After an error feed.load_state_dict(feed.state_dict()) goes on from what was received."
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
        self._recorder.add("epoch", time.perf_counter() - self._began, nbytes=self._nbytes)
        raise StopIteration

    def _taken(self, batch: tuple[Slot, list[Any], tuple[int, ...]]) -> Tree:
        """What is done to a batch of a device when somebody takes it."""
        slot, leaves, key = batch
        try:
            self._runner.engine.lend(slot.memory)
            return self._build(leaves) if self._after is None else self._after(leaves, key)
        except BaseException:
            self._progress.fail(batch)
            raise

    def _key(self, group: Group, batch: int) -> tuple[int, ...]:
        """What random numbers of a batch are drawn from; the same as on the host."""
        cursor = self._feed._schedule.advanced(group.cursor, batch)
        return cursor.epoch, cursor.passes, cursor.position + self._shard_index

    def _begin_group(self, slot: Slot) -> None:
        """Hand a whole group off at once: half the cost of doing it batch by batch, on a device too."""
        group, full = slot.group, slot.layout.batch_rows
        assert group is not None
        batches = slot.batches[: group.batches]
        short = group.rows - (group.batches - 1) * full
        if short < full:
            batches[-1] = [root[:short] for root in batches[-1]]
        build, hand_off = self._build, self._hand_off
        ready: list[Any]
        if self._plain:
            ready = [build(hand_off(roots)) for roots in reversed(batches)]
        else:  # the rest is done as each is taken: on the taker's stream, and without holding a group of results
            keys = [self._key(group, number) for number in range(len(batches))] if self._after else [()] * len(batches)
            ready = [(slot, hand_off(roots), key) for roots, key in zip(batches, keys, strict=True)][::-1]
        self._recorder.add("given", count=group.batches, nbytes=group.rows * self._row_nbytes)
        if self._progress.over:
            raise FeedError("this iteration ended while it waited: use the newer iterator.")
        self._last = group.epoch_ends
        self._nbytes += group.rows * self._row_nbytes
        self._progress.begin_group(group.cursor, ready)
