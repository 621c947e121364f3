"""The row numbers of groups, computed on the host or on a device."""

import threading
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.rows import Rows
from forebay.feed.transform_stage import GroupOrigin
from forebay.order.choices import consecutive_start
from forebay.order.device_steps import DeviceSteps
from forebay.order.length_buckets import BucketedBatches
from forebay.order.orders import Order, Repeated, order_chain
from forebay.order.permutation import Permutation
from forebay.order.sampling import Sampled
from forebay.order.schedule import ENDLESS, Cursor, Group, Schedule
from forebay.pipeline.pipeline import Pipeline

__all__ = ["BatchIndex", "DeviceComputedRows", "GroupRows", "RowIndex"]

PASSES_PER_CHUNK = 100  # most passes of a repeated order in a chunk; to shuffle each pass takes about 0.1 ms
CACHED_CHUNKS = 3  # chunks: the current one, the next one, and the previous one, which slower threads may still need


@dataclass(frozen=True, slots=True)
class DeviceComputedRows:
    """Row numbers that a device computes.

    The row numbers are those at the positions `first`, `first + step`, `first + 2 * step`, ... of the order.
    """

    steps: DeviceSteps  # with which the device computes the row number at a position
    first: int
    step: int
    count: int  # of positions


class RowIndex:
    """Computes the row numbers of groups, in chunks that several groups share.

    A chunk has the row numbers of consecutive rows of this shard. Its key has three numbers: the pass over the rows,
    the position `Group.base` from which the pass counts rows, and the number of the chunk, counted from that base. The
    index caches a few chunks.
    """

    def __init__(self, pipeline: Pipeline, *, group_rows: int, chunk_rows: int, on_device: bool = True) -> None:
        """Prepare the index of a pipeline's order.

        A chunk has about `chunk_rows` rows, and a group has at most `group_rows`. `on_device` is False if no device
        computes row numbers: without a device, or if the tables of the order do not fit on it.
        """
        assert pipeline.order is not None
        self._order: Order = pipeline.order
        self._schedule = pipeline.schedule
        self._first_row = consecutive_start(self._order) or 0
        # True if row numbers are consecutive.
        self._is_slice = consecutive_start(self._order) is not None and pipeline.shard_count == 1
        chunk_rows = min([chunk_rows, *map(_rows_of_passes, order_chain(self._order))])
        self._chunk_rows = group_rows * max(1, chunk_rows // group_rows)  # a multiple: few groups span two chunks
        self._chunks: OrderedDict[tuple[int, int, int], Any] = OrderedDict()
        is_short = self._schedule.pass_rows <= Permutation.TABLE_LENGTH
        # True if the host computes the row numbers of a group in little time.
        self.is_fast_on_host = self._is_slice or (is_short and not any(map(_sorts_all_rows, order_chain(self._order))))
        self._on_device = on_device and (self._is_slice or not self.is_fast_on_host)
        # True if the host computes the row numbers of a group in little time, or if a device can compute them.
        self.is_cheap = self.is_fast_on_host or (on_device and self._order.device_steps(0) is not None)
        # Cache the steps of two epochs: threads may fill the last group of one and the first group of the next.
        self._device_steps = lru_cache(maxsize=2)(self._order.device_steps)
        self._last_requested_chunk = -1, -1  # epoch and number of the last requested chunk
        self._lock = threading.Lock()

    def rows_of(self, group: Group) -> Rows:
        """Return the row numbers of a group, as a slice or an array."""
        if self._is_slice:
            start = self._first_row + group.base + group.start
            return slice(start, start + group.rows)
        epoch, stop = self._schedule.order_epoch(group.cursor), group.start + group.rows
        chunk_numbers = range(group.start // self._chunk_rows, -(-stop // self._chunk_rows))
        self._last_requested_chunk = epoch, chunk_numbers[-1]
        parts = [self._chunk_part((epoch, group.base, number), group.start, stop) for number in chunk_numbers]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def ids_of(self, group: Group, numbers: Rows) -> Rows:
        """Return the row id of each row. No two rows of a pass have the same id.

        Row ids are the row numbers (`numbers`). If a row may occur several times, they are the positions in the order
        of all shards.
        """
        return self._schedule.positions(group) if self._order.repeats_rows else numbers

    def device_computed_rows(self, group: Group) -> DeviceComputedRows | None:
        """Return what a device needs to compute the row numbers; None if it cannot."""
        steps = self._device_steps(self._schedule.order_epoch(group.cursor)) if self._on_device else None
        if steps is None:
            return None
        first = group.base + self._schedule.shard_index + group.start * self._schedule.shard_count
        return DeviceComputedRows(steps, first, self._schedule.shard_count, group.rows)

    def prepare_after(self, group: Group) -> None:
        """Compute and cache the next chunk if a group needs it soon (see `_next_chunk_key`).

        Do nothing if another thread computes a chunk at this moment. Do nothing also if a thread has already requested
        row numbers of the next chunk or of a later one.
        """
        key = self._next_chunk_key(group)
        if key is None or key in self._chunks or (key[0], key[2]) <= self._last_requested_chunk:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._cached_chunk(key)
            finally:
                self._lock.release()

    def _chunk_part(self, key: tuple[int, int, int], start: int, stop: int) -> Any:
        """Return the part of a chunk that belongs to rows `start` to `stop - 1`.

        Both numbers count the rows of this shard after the base.
        """
        chunk = self._chunks.get(key)
        if chunk is None:
            with self._lock:
                chunk = self._cached_chunk(key)
        first = key[2] * self._chunk_rows
        return chunk[max(0, start - first) : stop - first]

    def _next_chunk_key(self, group: Group) -> tuple[int, int, int] | None:
        """Return the key of the chunk to compute in advance after a group.

        Return None if row numbers are consecutive, because they need no chunks. Return None also if the group ends in
        the first half of its chunk, unless this is the last chunk of the pass.
        """
        if self._is_slice:
            return None
        schedule, epoch = self._schedule, self._schedule.order_epoch(group.cursor)
        if group.ends_epoch:
            return schedule.order_epoch(Cursor(epoch=group.cursor.epoch + 1)), 0, 0
        number, offset = divmod(group.start + group.rows - 1, self._chunk_rows)
        if group.ends_pass or self._first_position(group.base, number + 1) >= schedule.pass_rows:
            return epoch + 1, 0, 0
        return None if offset < self._chunk_rows // 2 else (epoch, group.base, number + 1)

    def _cached_chunk(self, key: tuple[int, int, int]) -> Any:
        """Return a chunk, and compute and cache it if necessary. The caller holds the lock."""
        chunk = self._chunks.get(key)
        if chunk is None:
            with self._progress_line():
                chunk = self._compute_chunk(*key)
            self._chunks[key] = chunk
            while len(self._chunks) > CACHED_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk

    def _progress_line(self) -> AbstractContextManager[Any]:
        """Return a progress line if computing one chunk takes long; otherwise a null context.

        It takes long if the order draws without replacement: the order must then sort all rows of the epoch first.
        """
        if not any(map(_sorts_all_rows, order_chain(self._order))):
            return nullcontext()
        return ProgressLine(f"sample(replacement=False) draws {self._schedule.pass_rows:,} rows")

    def _compute_chunk(self, epoch: int, base: int, number: int) -> Any:
        schedule, first = self._schedule, self._first_position(base, number)
        last = min(first + self._chunk_rows * schedule.shard_count, min(schedule.pass_rows, ENDLESS))
        positions = np.arange(first, last, schedule.shard_count, dtype=np.int64)
        return self._order.rows(epoch, positions).astype(np.intp, copy=False)

    def _first_position(self, base: int, number: int) -> int:
        """Return the position, in the order of all shards, at which a chunk begins."""
        return base + self._schedule.shard_index + number * self._chunk_rows * self._schedule.shard_count


def _rows_of_passes(order: Order) -> int:
    """Return the number of rows in PASSES_PER_CHUNK passes of a repeated order.

    Return ENDLESS for other orders, because they do not limit a chunk.
    """
    length = order.inner.length if isinstance(order, Repeated) else None
    return ENDLESS if length is None else max(1, PASSES_PER_CHUNK * length)


def _sorts_all_rows(order: Order) -> bool:
    """Return whether the order sorts all rows of its inner order.

    A short epoch may draw from very many rows, so the sort may take long for it too.
    """
    return isinstance(order, Sampled) and not order.replacement


class BatchIndex:
    """Computes the row numbers of groups for `batch(tokens=)`; it has the methods of `RowIndex`.

    A group has one batch. A position of the schedule is a whole batch, so a group has one position and any number of
    rows.
    """

    is_cheap = is_fast_on_host = False

    def __init__(self, order: BucketedBatches, schedule: Schedule) -> None:
        self._order, self._schedule = order, schedule

    def rows_of(self, group: Group) -> Rows:
        """Return the row numbers of the batch."""
        epoch = self._schedule.order_epoch(group.cursor)
        return self._order.inner.rows(epoch, self._order.positions(epoch, self._position(group))).astype(np.intp)

    def ids_of(self, group: Group, numbers: Rows) -> Rows:
        """Return the row id of each row. No two rows of a pass have the same id."""
        if not self._order.repeats_rows:
            return numbers
        return self._order.positions(self._schedule.order_epoch(group.cursor), self._position(group)).astype(np.intp)

    def device_computed_rows(self, group: Group) -> DeviceComputedRows | None:
        return None

    def prepare_after(self, group: Group) -> None:
        """After the last batch of a pass, compute the tables of the next pass."""
        if group.ends_epoch:
            self._order.positions(self._schedule.order_epoch(Cursor(epoch=group.cursor.epoch + 1)), 0)
        elif group.ends_pass:
            self._order.positions(self._schedule.order_epoch(group.cursor) + 1, 0)

    def _position(self, group: Group) -> int:
        return group.base + self._schedule.shard_index + group.start * self._schedule.shard_count


class RowNumberFinder(Protocol):
    """Finds the row numbers of groups. `RowIndex` documents the methods."""

    def rows_of(self, group: Group) -> Rows: ...
    def ids_of(self, group: Group, numbers: Rows) -> Rows: ...
    def device_computed_rows(self, group: Group) -> DeviceComputedRows | None: ...


class GroupRows:
    """The rows of one group. The first call of `numbers` computes the row numbers."""

    __slots__ = ("_group", "_index", "_numbers")

    def __init__(self, index: "RowNumberFinder", group: Group) -> None:
        self._index, self._group = index, group
        self._numbers: Rows | None = None

    @property
    def count(self) -> int:
        return self._group.rows

    def numbers(self) -> Rows:
        """Return the row numbers, computed on the host."""
        if self._numbers is None:
            self._numbers = self._index.rows_of(self._group)
        return self._numbers

    def origin(self) -> GroupOrigin:
        """Return where the rows come from, for the transforms."""
        numbers = self.numbers()
        return GroupOrigin(self._group.cursor, numbers, self._index.ids_of(self._group, numbers))

    def device_computed_rows(self) -> DeviceComputedRows | None:
        """Return what a device needs to compute the row numbers; None if it cannot."""
        return self._index.device_computed_rows(self._group)
