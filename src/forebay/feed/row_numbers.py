"""Which rows a group has: their numbers, computed in chunks that neighbouring groups share, or left to a device."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.source import Rows
from forebay.order.orders import Order, Permutation, Scramble
from forebay.order.schedule import ENDLESS, Cursor, Group
from forebay.pipeline.pipeline import Pipeline

__all__ = ["Drawn", "GroupRows", "RowNumbers"]

KEPT_CHUNKS = 3


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows that a device computes: those at positions first, first + step, ... of a scrambled order."""

    scramble: Scramble
    first: int
    step: int
    count: int


class RowNumbers:
    """The row numbers of groups, computed in large chunks that neighbouring groups share."""

    def __init__(self, pipeline: Pipeline, *, group_rows: int, chunk_rows: int) -> None:
        assert pipeline.order is not None
        self._order: Order = pipeline.order
        self._schedule = pipeline.schedule
        self._direct = self._order.natural and pipeline.shard_count == 1
        self._chunk_rows = group_rows * max(1, chunk_rows // group_rows)  # so that few groups lie across two
        self._chunks: OrderedDict[tuple[int, int, int], Any] = OrderedDict()
        # Whether nobody is kept waiting by them: a device computes them, or there are few.
        few = self._direct or self._schedule.pass_rows <= Permutation.TABLE_LENGTH
        self.instant = few or self._order.scramble(0) is not None
        self._scrambled: tuple[int, Scramble | None] = -1, None  # of the epoch that was asked for last
        self._latest = -1, -1  # epoch and number of the chunk that was asked for last
        self._lock = threading.Lock()

    def of(self, group: Group) -> Rows:
        if self._direct:
            start = group.base + group.start
            return slice(start, start + group.rows)
        epoch, stop = self._schedule.order_epoch(group.cursor), group.start + group.rows
        numbers = range(group.start // self._chunk_rows, -(-stop // self._chunk_rows))
        self._latest = epoch, numbers[-1]
        pieces = [self._piece(epoch, group.base, number, group.start, stop) for number in numbers]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def drawn(self, group: Group) -> Drawn | None:
        """How a device computes the same numbers, where the order is a scramble."""
        scramble = self._scramble(self._schedule.order_epoch(group.cursor))
        if scramble is None:
            return None
        first = group.base + self._schedule.shard_index + group.start * self._schedule.shard_count
        return Drawn(scramble, first, self._schedule.shard_count, group.rows)

    def _scramble(self, epoch: int) -> Scramble | None:
        known, scramble = self._scrambled
        if known != epoch:
            scramble = self._order.scramble(epoch)
            self._scrambled = epoch, scramble
        return scramble

    def prepare(self, group: Group) -> None:
        """Compute the next chunk before anybody needs it, if nobody does so already and none after it was asked for."""
        key = self._coming(group)
        if key is None or key in self._chunks or (key[0], key[2]) <= self._latest:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._keep(key)
            finally:
                self._lock.release()

    def _coming(self, group: Group) -> tuple[int, int, int] | None:
        """The chunk that will be asked for next: of this pass, once half of the last is used, or of the pass after."""
        if self._direct:
            return None
        schedule, epoch = self._schedule, self._schedule.order_epoch(group.cursor)
        if group.epoch_ends:
            return schedule.order_epoch(Cursor(epoch=group.cursor.epoch + 1)), 0, 0
        number, offset = divmod(group.start + group.rows - 1, self._chunk_rows)
        if group.pass_ends or self._first(group.base, number + 1) >= schedule.pass_rows:
            return epoch + 1, 0, 0
        return None if offset < self._chunk_rows // 2 else (epoch, group.base, number + 1)

    def _first(self, base: int, number: int) -> int:
        """The position at which a chunk begins."""
        return base + self._schedule.shard_index + number * self._chunk_rows * self._schedule.shard_count

    def _piece(self, epoch: int, base: int, number: int, start: int, stop: int) -> Any:
        """The part of a chunk between two of the shard's rows."""
        first = number * self._chunk_rows
        return self._chunk((epoch, base, number))[max(0, start - first) : stop - first]

    def _chunk(self, key: tuple[int, int, int]) -> Any:
        found = self._chunks.get(key)
        if found is not None:
            return found
        with self._lock:
            return self._keep(key)

    def _keep(self, key: tuple[int, int, int]) -> Any:
        found = self._chunks.get(key)
        if found is None:
            found = self._compute(*key)
            self._chunks[key] = found
            while len(self._chunks) > KEPT_CHUNKS:
                self._chunks.popitem(last=False)
        return found

    def _compute(self, epoch: int, base: int, number: int) -> Any:
        schedule, first = self._schedule, self._first(base, number)
        last = min(first + self._chunk_rows * schedule.shard_count, min(schedule.pass_rows, ENDLESS))
        positions = np.arange(first, last, schedule.shard_count, dtype=np.int64)
        return self._order.rows(epoch, positions).astype(np.intp, copy=False)


class GroupRows:
    """The rows of one group, computed here only if somebody asks for them."""

    __slots__ = ("_found", "_group", "_numbers")

    def __init__(self, numbers: RowNumbers, group: Group) -> None:
        self._numbers, self._group = numbers, group
        self._found: Rows | None = None

    @property
    def count(self) -> int:
        return self._group.rows

    def numbers(self) -> Rows:
        if self._found is None:
            self._found = self._numbers.of(self._group)
        return self._found

    def drawn(self) -> Drawn | None:
        return self._numbers.drawn(self._group)
