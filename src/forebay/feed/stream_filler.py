"""Fills slots from streams of rows and from ready-made batches, which it reads in sequence.

A `StreamFiller` reads a batch in pieces of a few rows. Between two pieces, it lets the consumer run.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import StreamReader
from forebay.core.spec import Array
from forebay.errors import SourceError, StateError
from forebay.feed.filler import FillerParts
from forebay.feed.slot import Slot
from forebay.feed.throttle import ConsumerThrottle
from forebay.feed.transform_stage import GroupOrigin
from forebay.order.schedule import Cursor, Group
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.generator import GeneratorReader
from forebay.transforms.padding import pad_rows

__all__ = ["BatchFiller", "StreamFiller"]

MAX_READY_MADE_ROWS = 1 << 32  # row ids that each ready-made batch reserves, so that the ids of two batches differ
PIECE_SECONDS = 200e-6  # target time to read one piece; between two pieces, the thread gives way to the consumer


@dataclass(frozen=True, slots=True)
class _ReadGroup:
    """A group that a thread has read but not yet transformed."""

    group: Group
    leaves: list[Any] | None  # the arrays to transform; None if the rows are in the slot already


class _StreamPosition:
    """The reader of the current pass, and the cursor of the next batch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._stream: Any = pipeline.source
        self.schedule = pipeline.schedule
        self.reader: Any = None
        self.cursor = Cursor()
        self._pass_batches = 0  # batches that `reader` has read

    def move_to(self, cursor: Cursor) -> None:
        """Close the reader. The next `open` starts a reader at `cursor`."""
        self.close()
        self.cursor = cursor

    @property
    def is_over(self) -> bool:
        """True if the cursor is at the end of the epoch."""
        schedule, cursor = self.schedule, self.cursor
        has_all_passes = schedule.passes is not None and cursor.passes >= schedule.passes
        return has_all_passes or (schedule.batch_limit is not None and cursor.batches >= schedule.batch_limit)

    def open(self) -> Any:
        """Return the reader of the current pass; start one at the cursor if necessary."""
        if self.reader is None:
            self.reader = self._stream.start(self.schedule.order_epoch(self.cursor), self.cursor.stream)
            self._pass_batches = 0
            rows_to_skip = self.cursor.position - self.cursor.stream_position
            if rows_to_skip < 0:
                raise StateError(
                    f"the state is damaged: its stream is at position {self.cursor.stream_position}, beyond its own "
                    f"position {self.cursor.position}. Load another state."
                )
            self._check_skipped_rows(self.reader.skip(rows_to_skip), rows_to_skip)
            self.cursor = replace(self.cursor, stream=None, stream_position=0)
        return self.reader

    def _check_skipped_rows(self, skipped: int, expected: int) -> None:
        """Raise StateError if the stream ended before the position of the state.

        The reader had to skip `expected` rows, and skipped `skipped` of them. Only rows of an incomplete last batch may
        be missing.
        """
        if expected - skipped >= max(1, self.schedule.batch_rows * self.schedule.shard_count):
            unit = "batches" if isinstance(self._stream, BatchStream) else "rows"
            raise StateError(
                f"the stream ended after {skipped} {unit}, but a resumed feed must skip {expected} to reach the "
                "position of the state. Resume with the same data."
            )

    def cursor_with_stream_state(self) -> Cursor:
        """Return the cursor, with the state of the stream if the stream has one."""
        state = self.reader.state_dict()
        if state is None:
            return self.cursor
        return replace(self.cursor, stream=state, stream_position=self.cursor.position)

    def advance(self, batches: int, *, pass_ended: bool) -> None:
        """Move the cursor by `batches` batches, and to the next pass if this one ended."""
        self._pass_batches += batches
        self.cursor = self.schedule.advance(self.cursor, batches)
        if not pass_ended:
            return
        if self.schedule.passes is None and self._pass_batches == 0 and self.cursor.position == 0:
            raise SourceError(
                "repeat() would never end: a whole pass of the stream gave no batch. Check that the stream yields "
                "rows, and with drop_remainder at least a full batch."
            )
        self.close()
        self.cursor = replace(self.cursor, passes=self.cursor.passes + 1, position=0)

    def close(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.close()


class _SequentialFiller(ABC):
    """The common base class of `StreamFiller` and `BatchFiller`.

    Only one thread at a time reads. After the read, several threads may transform groups at the same time.
    """

    reads_in_order = True
    consumer_may_fill = False  # a read runs the user's Python code, which may block
    continues_into_next_epoch = False  # the user's code for an epoch must not run before `iter()` starts this epoch

    def __init__(self, parts: FillerParts, throttle: ConsumerThrottle) -> None:
        pipeline = parts.pipeline
        self._position = _StreamPosition(pipeline)
        self._source: Any = pipeline.source
        self._schedule = pipeline.schedule
        self._pad = pipeline.row_stacking
        self._plan, self._transform_stage, self._recorder = parts.plan, parts.transform_stage, parts.recorder
        self._throttle = throttle

    def only_enqueues(self, slot: Slot) -> bool:
        return False

    def tasks(self, cursor: Cursor) -> Iterator[Cursor | None]:
        """Yield the start cursor for the first group, and then None for each further group.

        The iterator never ends, because the length of a stream is unknown; `read` detects the end.
        """
        yield cursor
        while True:
            yield None

    def read(self, slot: Slot, task: Cursor | None, worker: int) -> _ReadGroup | None:
        """Read and return the next group, or None at the end of the epoch."""
        if task is not None:
            self._position.move_to(task)
        started_at = time.perf_counter()
        try:
            while not self._position.is_over:
                group = self._read_group(slot)
                if group is not None:
                    return group
        except Exception as error:
            cursor = self._position.cursor
            error.add_note(f"while reading near position {cursor.position} of epoch {cursor.epoch}")
            raise
        finally:
            self._recorder.add_span("read", time.perf_counter() - started_at)
        return None

    @abstractmethod
    def _read_group(self, slot: Slot) -> _ReadGroup | None:
        """Return the next group of this pass, or None at the end of the pass."""

    def finish(self, slot: Slot, read_group: _ReadGroup, worker: int) -> Group:
        """Transform the group that `read` returned, and write it to the slot."""
        group = read_group.group
        slot.row_ids = self._row_ids(group)
        if read_group.leaves is not None:
            started_at = time.perf_counter()
            origin = GroupOrigin(group.cursor, self._schedule.positions(group), slot.row_ids)
            self._transform_stage.transform_into(slot, read_group.leaves, origin, worker)
            self._recorder.add_span("transform", time.perf_counter() - started_at)
        return group

    def _row_ids(self, group: Group) -> Rows:
        """Return the row id of each row. No two rows of a pass have the same id."""
        return self._schedule.positions(group)

    def prepare_after(self, group: Group) -> None:
        """Do nothing, because the next rows of a stream are unknown."""
        return

    def stop(self) -> None:
        self._transform_stage.close()

    def close(self) -> None:
        with suppress(ValueError):  # a generator that is still running cannot be closed
            self._position.close()


class StreamFiller(_SequentialFiller):
    """Fills slots from a stream of rows, with one batch for each slot.

    In a group of several batches, the consumer could get the first batch only after the thread has read all of them.
    """

    _piece_rows = 1  # rows of a piece; `_adapt_piece_rows` changes it

    def _read_group(self, slot: Slot) -> _ReadGroup | None:
        reader = self._position.open()
        cursor = self._position.cursor_with_stream_state()
        leaves, rows, is_full = self._read_rows(reader, slot, self._schedule.batch_rows)
        if not is_full and self._schedule.drop_remainder:
            rows = 0
        self._position.advance(1 if rows else 0, pass_ended=not is_full)
        if rows == 0:
            return None
        group = Group(cursor, 0, rows, 1, cursor.position, ends_pass=not is_full, ends_epoch=False)
        if leaves is not None and len(leaves[0]) > rows:
            leaves = [leaf[:rows] for leaf in leaves]
        return _ReadGroup(group, leaves)

    def _read_rows(self, reader: Any, slot: Slot, max_rows: int) -> tuple[list[Any] | None, int, bool]:
        """Read rows of this shard, up to a full batch of `max_rows` rows.

        Return the arrays to transform (None if the rows are already in the slot), the number of rows, and whether the
        stream had enough rows for a full batch.
        """
        if self._pad is not None:
            return self._read_padded(reader, max_rows)
        if self._plan.input.transforms:
            leaves = self._transform_stage.input_arrays(slot, max_rows)
            return leaves, *self._read_pieces(reader, leaves)
        row_by_row = isinstance(reader, GeneratorReader) and self._schedule.shard_count == 1
        return None, *self._read_pieces(reader, slot.row_views() if row_by_row else slot.gather_arrays(max_rows))

    def _read_pieces(self, reader: StreamReader, out: Sequence[Any]) -> tuple[int, bool]:
        """Read piece by piece until `out` is full or the stream ends.

        Return the number of rows, and whether `out` is full.
        """
        read_rows, max_rows = 0, len(out[0])
        while read_rows < max_rows:
            self._throttle.yield_to_consumer()
            piece_rows = min(self._piece_rows, max_rows - read_rows)
            started_at = time.perf_counter()
            count, is_full = self._read_own_rows(reader, [leaf[read_rows : read_rows + piece_rows] for leaf in out])
            read_rows += count
            if not is_full:
                return read_rows, False
            self._adapt_piece_rows(time.perf_counter() - started_at)
        return read_rows, True

    def _adapt_piece_rows(self, seconds: float) -> None:
        """Change the number of rows of a piece, so that a piece takes about PIECE_SECONDS.

        `seconds` is the time that the last piece took.
        """
        if seconds < PIECE_SECONDS / 2:
            self._piece_rows = min(self._piece_rows * 2, self._schedule.batch_rows)
        elif seconds > PIECE_SECONDS * 2:
            self._piece_rows = max(1, self._piece_rows // 2)

    def _read_own_rows(self, reader: StreamReader, out: Sequence[Any]) -> tuple[int, bool]:
        """Read the rows of all shards, and write those of this shard to `out`.

        Return the number of rows of this shard, and whether the stream had enough rows for all shards.
        """
        shard_count, rows = self._schedule.shard_count, len(out[0])
        if shard_count == 1:
            read_rows = reader.read(out)
            return read_rows, read_rows == rows
        all_rows = [np.empty((rows * shard_count, *leaf.shape[1:]), leaf.dtype) for leaf in out]
        read_rows = reader.read(all_rows)
        own_rows = len(range(self._schedule.shard_index, read_rows, shard_count))
        for array, leaf in zip(out, all_rows, strict=True):
            array[:own_rows] = leaf[self._schedule.shard_index : read_rows : shard_count]
        return own_rows, read_rows == rows * shard_count

    def _read_padded(self, reader: Any, max_rows: int) -> tuple[list[Any] | None, int, bool]:
        self._throttle.yield_to_consumer()
        rows = reader.rows(max_rows * self._schedule.shard_count)
        is_full = len(rows) == max_rows * self._schedule.shard_count
        own_rows = rows[self._schedule.shard_index :: self._schedule.shard_count]
        if not own_rows:
            return [], 0, is_full
        return pad_rows(own_rows, self._source.structure.paths, self._pad), len(own_rows), is_full


class BatchFiller(_SequentialFiller):
    """Fills slots with the ready-made batches of a loader.

    The reading thread copies each batch before it requests the next one, because loaders reuse their memory.
    """

    def _read_group(self, slot: Slot) -> _ReadGroup | None:
        reader = self._position.open()
        cursor = self._position.cursor_with_stream_state()
        self._throttle.yield_to_consumer()
        leaves = self._next_own_batch(reader)
        self._position.advance(0 if leaves is None else 1, pass_ended=leaves is None)
        if leaves is None:
            return None
        group = Group(cursor, 0, len(leaves[0]), 1, cursor.position, ends_pass=False, ends_epoch=False)
        if self._plan.input.transforms:
            return _ReadGroup(group, [np.array(leaf) for leaf in leaves])
        slot.write_variable_size(leaves)
        return _ReadGroup(group, None)

    def _row_ids(self, group: Group) -> Rows:
        """Return the row ids.

        They combine the number of the batch and the index of the row in the batch. The position of a row is unknown
        after a resume, because the sizes of earlier batches are unknown.
        """
        first = (group.cursor.position + self._schedule.shard_index) * MAX_READY_MADE_ROWS
        return slice(first, first + group.rows)

    def _next_own_batch(self, reader: Any) -> list[Array] | None:
        """Read one batch for each shard, and return the batch of this shard.

        Return None if the loader has no batch left for this shard.
        """
        own_batch = None
        for index in range(self._schedule.shard_count):
            leaves = reader.next_batch()
            if leaves is None:
                break
            if index == self._schedule.shard_index:
                own_batch = [np.array(leaf) for leaf in leaves] if self._schedule.shard_count > 1 else leaves
        return own_batch
