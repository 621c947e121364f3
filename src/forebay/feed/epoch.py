"""One epoch of a feed: its iterator, and the progress of the consumer."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from forebay.core.recorder import Recorder, TakenGroup
from forebay.core.spec import Tree
from forebay.errors import FeedError
from forebay.feed.build import FeedParts
from forebay.feed.reports import RegularReports
from forebay.feed.slot import Slot
from forebay.feed.slot_exchange import reject_stop_iteration
from forebay.order.schedule import Cursor, Schedule
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.streams.batches import BatchStream

__all__ = ["Epoch", "EpochFeed", "Progress"]


@dataclass(frozen=True, slots=True)
class EpochFeed:
    """The objects of a feed that its epochs use."""

    pipeline: Pipeline
    parts: FeedParts
    reports: RegularReports
    read_stats: Callable[[], dict[str, Any]]  # a bound method of the feed; it keeps the feed alive during the iteration
    # An epoch takes a group and hands it off under this lock. Otherwise another thread could reuse the slot in between.
    lock: threading.Lock


class Epoch:
    """An iterator over one epoch of a feed. Several threads may call `next` on it."""

    def __init__(self, feed: EpochFeed, progress: "Progress", generation: int) -> None:
        parts, self._pipeline, self._schedule = feed.parts, feed.pipeline, feed.pipeline.schedule
        self._progress, self._generation, progress.is_unused = progress, generation, True
        self.plan, self._runner, self._recorder = parts.plan, parts.runner, parts.recorder
        self._hand_off, self._device_transforms = parts.hand_off.hand_off, parts.device_transforms
        self._refuse_tracing = parts.refuse_tracing
        self._build_tree, self._skipped_rows = parts.build_tree, parts.skipped_rows
        self._row_nbytes = sum(spec.nbytes for spec in self.plan.input.specs) if self.plan.input.fixed_size else None
        # True if `_begin_group` can already build the batches: on the host, if the consumer's thread transforms none.
        self._is_host = not parts.runner.engine.is_device and parts.device_transforms is None
        self._lock, self._reports, self._read_stats = feed.lock, feed.reports, feed.read_stats
        self._started_at, self._nbytes = time.perf_counter(), 0
        # True if no group follows the current one; False for a stream, whose end is unknown.
        self._is_last_group = self._pipeline.indexed and self._schedule.is_over(progress.cursor)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tree:
        if self._refuse_tracing is not None:  # check each batch, because a trace may begin in the middle of a group
            self._refuse_tracing()
        while True:
            try:
                batch = self._progress.ready.pop()  # list.pop is atomic, so this needs no lock
            except IndexError:
                pass  # leave the except block, so that later errors do not have this IndexError as their context
            else:
                return batch if self._is_host else self._take_on_device(batch)
            try:
                with self._lock:
                    if not self._progress.ready:
                        self._advance()
            finally:
                if self._reports.active:
                    self._reports.run_due(self._read_stats)

    @property
    def spent(self) -> bool:
        """True between the last batch and StopIteration. Always False if the length is unknown."""
        progress = self._progress
        return (self._is_last_group or self._has_received_all) and not progress.ready and not progress.is_over

    @property
    def _has_received_all(self) -> bool:
        """True if the loader has a length, and this shard has received its last batch.

        The loader is the user's object that makes ready-made batches.
        """
        pipeline, cursor = self._pipeline, self._progress.cursor
        length = pipeline.source.length if isinstance(pipeline.source, BatchStream) else None
        received_all = length is not None and cursor.position + pipeline.shard_index >= length
        return received_all and cursor.passes + 1 == pipeline.passes

    def close(self) -> None:
        """End the epoch early.

        If the consumer has requested a batch, the next `iter(feed)` starts the following epoch. Otherwise it starts
        this epoch again.
        """
        self._progress.end()

    def _advance(self) -> None:
        """Take the next group from the runner, or raise StopIteration after the last one."""
        progress = self._progress
        if progress.is_finished:
            raise StopIteration
        if progress.is_over:
            raise FeedError(
                "this iteration has ended: by an error, or by close(), load_state_dict(), set_epoch() or a newer "
                "iter(feed). Use the newer iterator, or start one. To continue after the last received batch, call "
                "feed.load_state_dict(feed.state_dict()) first."
            )
        progress.is_unused = False
        requested_at = time.perf_counter()
        try:
            slot = None if self._is_last_group else self._runner.take(self._generation)
            if slot is not None:
                self._begin_group(slot, requested_at)
                return
        except BaseException as error:
            progress.end()
            self._recorder.add_error()
            reject_stop_iteration(error)
            raise
        progress.end()
        progress.is_finished = True
        self._recorder.add_span("epoch", time.perf_counter() - self._started_at, nbytes=self._nbytes)
        raise StopIteration

    def _take_on_device(self, batch: tuple[Slot, list[Any], Any]) -> Tree:
        """Return a batch on a device, after the device transforms.

        `batch` has its slot, its arrays of the framework, and the context that seeds its random numbers.
        """
        slot, leaves, context = batch
        try:
            self._runner.engine.hand_out(slot.memory)
            transforms = self._device_transforms
            return self._build_tree(leaves) if transforms is None else transforms(leaves, context)
        except BaseException as error:
            self._progress.fail(batch)
            self._recorder.add_error()
            reject_stop_iteration(error)
            raise

    def _begin_group(self, slot: Slot, requested_at: float) -> None:
        """Hand off all batches of a group, which takes half the time of separate hand-offs.

        `requested_at` is the time in seconds at which the consumer requested the group.
        """
        group, batch_rows = slot.group, slot.layout.batch_rows
        assert group is not None
        if self._skipped_rows is not None:
            self._skipped_rows.add(slot.skipped_rows, group.rows)
        batches = slot.batches[: group.batches]
        last_rows = group.rows - (group.batches - 1) * batch_rows
        if last_rows < batch_rows:
            batches[-1] = [root[:last_rows] for root in batches[-1]]
        build_tree, hand_off = self._build_tree, self._hand_off
        ready: list[Any]
        if self._is_host:
            ready = [build_tree(hand_off(roots)) for roots in reversed(batches)]
        else:  # the device transforms run later, on the stream of the thread that takes the batch
            schedule = None if self._device_transforms is None else self._schedule
            contexts = [schedule and slot.batch_context(batch, schedule) for batch in range(len(batches))]
            ready = [(slot, hand_off(roots), context) for roots, context in zip(batches, contexts, strict=True)][::-1]
        parts = slot.layout.parts(group.rows) if self._row_nbytes is None else ()
        nbytes = group.rows * (self._row_nbytes or 0) + sum(part_nbytes for _, part_nbytes in parts)
        if self._progress.is_over:
            raise FeedError("this iteration was ended while it waited. Use the newer iterator, or start one.")
        taken = TakenGroup((group.batches, group.rows, nbytes, batch_rows), ready)
        self._recorder.begin_group(taken, time.perf_counter() - requested_at)
        self._is_last_group = group.ends_epoch
        self._nbytes += nbytes
        self._progress.begin_group(group.cursor, ready)


class Progress:
    """The progress of one `Epoch`.

    The feed refers to this object and not to the `Epoch`. A reference to the `Epoch` would be a cycle, so Python would
    free neither of them before its next garbage collection.
    """

    __slots__ = (
        "_group_batches",
        "_group_cursor",
        "_recorder",
        "_schedule",
        "is_finished",
        "is_over",
        "is_unused",
        "ready",
    )

    def __init__(self, start: Cursor, schedule: Schedule, recorder: Recorder) -> None:
        self._recorder = recorder
        self._group_cursor, self._group_batches, self._schedule = start, 0, schedule
        self.is_unused = False  # True from the start of an `Epoch` until the consumer requests its first batch
        self.ready: list[
            Any
        ] = []  # batches of the current group that the consumer has not received, in reverse order for pop()
        self.is_finished = False  # True after the request that found no batch left, and so raised StopIteration
        self.is_over = False  # True after the epoch has finished or failed, or the feed has ended it

    @property
    def cursor(self) -> Cursor:
        """The position after the last received batch."""
        return self._schedule.advance(self._group_cursor, self._group_batches - len(self.ready))

    @property
    def next_start(self) -> Cursor:
        """The start of the next epoch, or of this one if it is unused."""
        return self.cursor if self.is_unused else Cursor(epoch=self.cursor.epoch + 1)

    def begin_group(self, cursor: Cursor, batches: list[Any]) -> None:
        """Continue with the batches of the group at the cursor."""
        self._group_cursor, self._group_batches = cursor, len(batches)
        self.ready = batches

    def fail(self, batch: Any) -> None:
        """End the epoch at the position before `batch`, because an error occurred in its delivery."""
        if not self.is_over:
            self.ready.append(batch)
            self.end()

    def end(self) -> None:
        """End the epoch, and drop the batches that the consumer has not received."""
        if not self.is_over:
            self._recorder.end_group()
        self._group_cursor, self._group_batches = self.cursor, 0
        self.ready, self.is_over = [], True
