"""A stream -> slot: rows or ready-made batches, read one after the other, in turn."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.source import Array, StreamReader
from forebay.errors import SourceError, StateError
from forebay.feed.slot import Slot
from forebay.feed.throttle import Consumer
from forebay.feed.transform_stage import Finisher
from forebay.order.schedule import Cursor, Group
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.sources.streams.generator import RowReader
from forebay.transforms.padding import pad_rows

__all__ = ["BatchWork", "StreamWork"]

PIECE_SECONDS = 200e-6  # rows are read in pieces of about this long, so that the interpreter is given up often enough


@dataclass(frozen=True, slots=True)
class _Begun:
    """A group that was read; its transforms are still to come."""

    group: Group
    leaves: list[Array] | None  # None: it lies in the slot already


class _Passes:
    """Where a stream is being read: its reader, and the cursor of what comes next."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._stream: Any = pipeline.source
        self.schedule = pipeline.schedule
        self.reader: Any = None
        self.cursor = Cursor()
        self._batches = 0  # read since the pass was opened

    def begin(self, cursor: Cursor) -> None:
        self.close()
        self.cursor = cursor

    @property
    def ended(self) -> bool:
        schedule, cursor = self.schedule, self.cursor
        out_of_passes = schedule.passes is not None and cursor.passes >= schedule.passes
        return out_of_passes or (schedule.batch_limit is not None and cursor.batches >= schedule.batch_limit)

    def open(self) -> Any:
        """The reader, at the cursor."""
        if self.reader is None:
            self.reader = self._stream.start(self.schedule.order_epoch(self.cursor), self.cursor.stream)
            self._batches = 0
            behind = self.cursor.position - self.cursor.stream_position
            if behind < 0:
                raise StateError(f"the state is damaged: the stream's own state lies {-behind} rows ahead.")
            self._check_skipped(self.reader.skip(behind), behind)
            self.cursor = replace(self.cursor, stream=None, stream_position=0)
        return self.reader

    def _check_skipped(self, skipped: int, wanted: int) -> None:
        """The last batch of a pass may have been short; more than that cannot be missing."""
        if wanted - skipped >= max(1, self.schedule.batch_rows * self.schedule.shard_count):
            raise StateError(
                f"the stream ended after {skipped} rows, but the state was taken after {wanted}: it has changed."
            )

    def stamp(self) -> Cursor:
        """The cursor with the stream's own state in it, where it has one."""
        state = self.reader.state_dict() if hasattr(self.reader, "state_dict") else None
        if state is None:
            return self.cursor
        return replace(self.cursor, stream=state, stream_position=self.cursor.position)

    def advance(self, batches: int, *, pass_ended: bool) -> None:
        self._batches += batches
        self.cursor = self.schedule.advanced(self.cursor, batches)
        if not pass_ended:
            return
        if self.schedule.passes is None and self._batches == 0 and self.cursor.position == 0:
            raise SourceError("repeat() would go on for ever: the stream gave nothing in a whole pass.")
        self.close()
        self.cursor = replace(self.cursor, passes=self.cursor.passes + 1, position=0)

    def close(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.close()


class _InTurn(ABC):
    """What reading rows and reading batches share: passes, turns, and transforms after the turn is over."""

    in_order = True
    quick = False  # somebody's Python code, which may block
    goes_on = False  # a pass begins when it is asked for

    def queues_only(self, slot: Slot) -> bool:
        return False

    def prepare(self, group: Group) -> None:  # noqa: B027  # empty for all: what comes in turn cannot be foreseen
        """Nothing can be."""

    def __init__(
        self, pipeline: Pipeline, plan: Plan, finisher: Finisher, recorder: Recorder, consumer: Consumer
    ) -> None:
        self._passes = _Passes(pipeline)
        self._source: Any = pipeline.source
        self._schedule = pipeline.schedule
        self._pad = pipeline.batching.pad if pipeline.batching else None
        self._plan, self._finisher, self._recorder, self._consumer = plan, finisher, recorder, consumer

    def tasks(self, cursor: Cursor) -> Iterator[Cursor | None]:
        """First where to begin; after that, only "go on": how far a stream goes is known when it was read."""
        yield cursor
        while True:
            yield None

    def read(self, slot: Slot, task: Cursor | None, worker: int) -> _Begun | None:
        if task is not None:
            self._passes.begin(task)
        began = time.perf_counter()
        try:
            while not self._passes.ended:
                begun = self._read_group(slot)
                if begun is not None:
                    return begun
        except Exception as error:
            error.add_note(
                f"while reading near position {self._passes.cursor.position} of epoch {self._passes.cursor.epoch}"
            )
            raise
        finally:
            self._recorder.add("read", time.perf_counter() - began)
        return None

    @abstractmethod
    def _read_group(self, slot: Slot) -> _Begun | None:
        """The next group of this pass, or None at its end."""

    def finish(self, slot: Slot, begun: _Begun, worker: int) -> Group:
        if begun.leaves is not None:
            began = time.perf_counter()
            self._finisher.finish(slot, begun.leaves, begun.group.cursor, worker)
            self._recorder.add("transform", time.perf_counter() - began)
        return begun.group

    def stop(self) -> None:
        self._finisher.close()

    def close(self) -> None:
        with suppress(ValueError):  # a generator that is still running somewhere cannot be closed
            self._passes.close()


class StreamWork(_InTurn):
    """Fills slots from a stream of rows, a batch each: the next row may be long in coming, no batch waits for it."""

    _piece_rows = 1

    def _read_group(self, slot: Slot) -> _Begun | None:
        reader = self._passes.open()
        cursor = self._passes.stamp()
        leaves, rows, full = self._read_rows(reader, slot, self._schedule.batch_rows)
        if not full and self._schedule.drop_remainder:
            rows = 0
        self._passes.advance(1 if rows else 0, pass_ended=not full)
        if rows == 0:
            return None
        group = Group(cursor, 0, rows, 1, cursor.position, pass_ends=not full, epoch_ends=False)
        return _Begun(group, None if leaves is None else [leaf[:rows] for leaf in leaves])

    def _read_rows(self, reader: Any, slot: Slot, wanted: int) -> tuple[list[Array] | None, int, bool]:
        """Rows into the slot, or beside it where transforms follow; how many, and whether the stream goes on."""
        if self._pad is not None:
            return self._read_ragged(reader, wanted)
        if self._plan.demand.transforms:
            leaves = self._finisher.input_targets(slot, wanted)
            return leaves, *self._read_pieces(reader, leaves)
        row_by_row = isinstance(reader, RowReader) and self._schedule.shard_count == 1
        return None, *self._read_pieces(reader, slot.row_targets() if row_by_row else slot.targets(wanted))

    def _read_pieces(self, reader: StreamReader, out: Sequence[Any]) -> tuple[int, bool]:
        """Read until `out` is full or the stream ends."""
        done, wanted = 0, len(out[0])
        while done < wanted:
            self._consumer.give_way()
            piece = min(self._piece_rows, wanted - done)
            before = time.perf_counter()
            count, whole = self._read_shard(reader, [leaf[done : done + piece] for leaf in out])
            done += count
            if not whole:
                return done, False
            self._adapt(time.perf_counter() - before)
        return done, True

    def _adapt(self, seconds: float) -> None:
        """Let a piece take about the time it should."""
        if seconds < PIECE_SECONDS / 2:
            self._piece_rows = min(self._piece_rows * 2, self._schedule.batch_rows)
        elif seconds > PIECE_SECONDS * 2:
            self._piece_rows = max(1, self._piece_rows // 2)

    def _read_shard(self, reader: StreamReader, out: Sequence[Any]) -> tuple[int, bool]:
        """This shard's rows, and whether all shards got theirs: every one reads the whole stream and keeps its own."""
        count, rows = self._schedule.shard_count, len(out[0])
        if count == 1:
            got = reader.read(out)
            return got, got == rows
        everybody = [np.empty((rows * count, *leaf.shape[1:]), leaf.dtype) for leaf in out]
        got = reader.read(everybody)
        own = len(range(self._schedule.shard_index, got, count))
        for target, leaf in zip(out, everybody, strict=True):
            target[:own] = leaf[self._schedule.shard_index : got : count]
        return own, got == rows * count

    def _read_ragged(self, reader: Any, wanted: int) -> tuple[list[Array] | None, int, bool]:
        self._consumer.give_way()
        rows = reader.rows(wanted * self._schedule.shard_count)
        full = len(rows) == wanted * self._schedule.shard_count
        own = rows[self._schedule.shard_index :: self._schedule.shard_count]
        if not own:
            return [], 0, full
        return pad_rows(own, self._source.structure.paths, self._pad), len(own), full


class BatchWork(_InTurn):
    """Fills slots from somebody else's loader, a batch each, copied at once: loaders use their memory again."""

    def _read_group(self, slot: Slot) -> _Begun | None:
        reader = self._passes.open()
        cursor = self._passes.stamp()
        self._consumer.give_way()
        leaves = self._own_batch(reader)
        self._passes.advance(0 if leaves is None else 1, pass_ended=leaves is None)
        if leaves is None:
            return None
        group = Group(cursor, 0, len(leaves[0]), 1, cursor.position, pass_ends=False, epoch_ends=False)
        if self._plan.demand.transforms:
            return _Begun(group, [np.array(leaf) for leaf in leaves])
        slot.hold(leaves)
        return _Begun(group, None)

    def _own_batch(self, reader: Any) -> list[Array] | None:
        """This shard's next batch: every shard reads the whole loader and keeps its own."""
        own = None
        for index in range(self._schedule.shard_count):
            leaves = reader.next_batch()
            if leaves is None:
                break
            if index == self._schedule.shard_index:
                own = [np.array(leaf) for leaf in leaves] if self._schedule.shard_count > 1 else leaves
        return own
