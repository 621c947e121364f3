"""The row numbers of groups, computed on the host in chunks or on a device."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.order.orders import Order
from forebay.order.permutation import Permutation, PermutationParams
from forebay.order.schedule import ENDLESS, Cursor, Group
from forebay.pipeline.pipeline import Pipeline

__all__ = ["ComputedRows", "GroupRows", "RowIndex"]

KEPT_CHUNKS = 3  # the current chunk, the next one, and the previous one for threads that are behind


@dataclass(frozen=True, slots=True)
class ComputedRows:
    """Row numbers that a device computes.

    They are at the positions `first`, `first + step`, `first + 2 * step`, ... of a permutation.
    """

    permutation_params: PermutationParams
    first: int
    step: int
    count: int


class RowIndex:
    """Computes the row numbers of groups, in large chunks that neighbouring groups share.

    A chunk is identified by the epoch of the order, the global position where the pass began, and its number.
    """

    def __init__(self, pipeline: Pipeline, *, group_rows: int, chunk_rows: int) -> None:
        assert pipeline.order is not None
        self._order: Order = pipeline.order
        self._schedule = pipeline.schedule
        self._is_slice = self._order.is_sequential and pipeline.shard_count == 1
        self._chunk_rows = group_rows * max(1, chunk_rows // group_rows)  # a multiple, so that few groups span chunks
        self._chunks: OrderedDict[tuple[int, int, int], Any] = OrderedDict()
        # True if no thread waits for row numbers: a device computes them, or there are few.
        has_few_rows = self._is_slice or self._schedule.pass_rows <= Permutation.TABLE_LENGTH
        self.is_cheap = has_few_rows or self._order.permutation_params(0) is not None
        self._epoch_params: tuple[int, PermutationParams | None] = -1, None  # of the last requested epoch
        self._last_chunk = -1, -1  # epoch and number of the last requested chunk
        self._lock = threading.Lock()

    def rows_of(self, group: Group) -> Rows:
        """Return the row numbers of a group."""
        if self._is_slice:
            start = group.base + group.start
            return slice(start, start + group.rows)
        epoch, stop = self._schedule.order_epoch(group.cursor), group.start + group.rows
        numbers = range(group.start // self._chunk_rows, -(-stop // self._chunk_rows))
        self._last_chunk = epoch, numbers[-1]
        parts = [self._part((epoch, group.base, number), group.start, stop) for number in numbers]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def device_computed_rows(self, group: Group) -> ComputedRows | None:
        """Return how a device computes the row numbers; None if it cannot."""
        params = self._permutation_params(self._schedule.order_epoch(group.cursor))
        if params is None:
            return None
        first = group.base + self._schedule.shard_index + group.start * self._schedule.shard_count
        return ComputedRows(params, first, self._schedule.shard_count, group.rows)

    def prepare_after(self, group: Group) -> None:
        """Compute the chunk after this group.

        Skip it if another thread does so, or if a later chunk was requested.
        """
        key = self._next_chunk_key(group)
        if key is None or key in self._chunks or (key[0], key[2]) <= self._last_chunk:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._cached_chunk(key)
            finally:
                self._lock.release()

    def _permutation_params(self, epoch: int) -> PermutationParams | None:
        known_epoch, params = self._epoch_params
        if known_epoch != epoch:
            params = self._order.permutation_params(epoch)
            self._epoch_params = epoch, params
        return params

    def _part(self, key: tuple[int, int, int], start: int, stop: int) -> Any:
        """Return the row numbers of a chunk between two rows of the shard."""
        chunk = self._chunks.get(key)
        if chunk is None:
            with self._lock:
                chunk = self._cached_chunk(key)
        first = key[2] * self._chunk_rows
        return chunk[max(0, start - first) : stop - first]

    def _next_chunk_key(self, group: Group) -> tuple[int, int, int] | None:
        """Return the key of the next chunk; None until half the current one is used."""
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
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = self._compute(*key)
            self._chunks[key] = chunk
            while len(self._chunks) > KEPT_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk

    def _compute(self, epoch: int, base: int, number: int) -> Any:
        schedule, first = self._schedule, self._first_position(base, number)
        last = min(first + self._chunk_rows * schedule.shard_count, min(schedule.pass_rows, ENDLESS))
        positions = np.arange(first, last, schedule.shard_count, dtype=np.int64)
        return self._order.rows(epoch, positions).astype(np.intp, copy=False)

    def _first_position(self, base: int, number: int) -> int:
        """Return the global position at which a chunk begins."""
        return base + self._schedule.shard_index + number * self._chunk_rows * self._schedule.shard_count


class GroupRows:
    """The rows of one group. The host computes their numbers only on request."""

    __slots__ = ("_group", "_index", "_numbers")

    def __init__(self, index: RowIndex, group: Group) -> None:
        self._index, self._group = index, group
        self._numbers: Rows | None = None

    @property
    def count(self) -> int:
        return self._group.rows

    def numbers(self) -> Rows:
        if self._numbers is None:
            self._numbers = self._index.rows_of(self._group)
        return self._numbers

    def device_computed_rows(self) -> ComputedRows | None:
        return self._index.device_computed_rows(self._group)
