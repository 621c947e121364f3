"""Orders that choose positions of their inner order: spans, tables and random splits."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.order.device_steps import Add, DeviceSteps, Lookup, join_steps, permutation_step
from forebay.order.orders import Order, Take, WrappingOrder, require_length
from forebay.order.permutation import Permutation, Positions, cached_permutation, derive_key

__all__ = ["PositionTable", "Selected", "Span", "SplitPart", "consecutive_start", "hash_array"]

# Part of the derived key of a split, so that a shuffle with the same seed has another key.
_SPLIT_KEY = int.from_bytes(b"split rows", "big")

_STEP_ROWS = 1 << 16  # positions per step; the temporary arrays of one step stay in the cache of a CPU core

PositionTable: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]


@dataclass(frozen=True, slots=True)
class Span(WrappingOrder):
    """`count` consecutive positions of the inner order, from `start` on.

    If `count` is None, the span has all positions up to the end of the inner order.
    """

    inner: Order
    start: int
    count: int | None = None

    @property
    def length(self) -> int | None:
        rest = None if self.inner.length is None else max(0, self.inner.length - self.start)
        if self.count is None or rest is None:
            return self.count if rest is None else rest
        return min(self.count, rest)

    @property
    def is_sequential(self) -> bool:
        return self.start == 0 and self.inner.is_sequential

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.inner.rows(epoch, positions + self.start)

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return join_steps([Add(self.start)] if self.start else [], self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("span", self.start, self.count, *self.inner.describe())


@dataclass(frozen=True, slots=True)
class Selected(WrappingOrder):
    """The positions of the inner order that a table lists.

    The table may list a position several times.
    """

    inner: Order
    table: PositionTable = field(compare=False, repr=False)
    digest: str  # a hash of the chosen positions
    ascends: bool  # whether the table never decreases
    repeats: bool  # whether the table lists a position several times
    is_sequential: bool = False

    @classmethod
    def of_mask(cls, inner: Order, mask: Array) -> "Selected":
        """Return the order of the positions at which a boolean mask is True."""
        return cls(inner, _positions_of(mask), _hash_mask(mask), ascends=True, repeats=False)

    @classmethod
    def of_positions(cls, inner: Order, positions: Positions) -> "Selected":
        """Return the order of these positions, which may be in any order."""
        length = require_length(inner, "select")
        table = _narrow(positions, length)
        if (table[1:] > table[:-1]).all():
            return cls(inner, table, _hash_ascending(table, length), ascends=True, repeats=False)
        ascends = bool((table[1:] >= table[:-1]).all())
        return cls(inner, table, hash_array(table), ascends, ascends or _has_repeats(table, length))

    @property
    def length(self) -> int:
        return len(self.table)

    @property
    def is_ascending(self) -> bool:
        return self.ascends and self.inner.is_ascending

    @property
    def repeats_rows(self) -> bool:
        return self.repeats or self.inner.repeats_rows

    def rows(self, epoch: int, positions: Positions) -> Positions:
        # All positions are inside of the table, so "clip" changes none. The default mode "raise" takes more time.
        chosen = self.table.take(positions, mode="clip")
        return self.inner.rows(epoch, chosen.astype(np.int64, copy=False))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return join_steps([Lookup(self.table)], self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("selected", self.length, self.digest, *self.inner.describe())


@dataclass(frozen=True, slots=True)
class SplitPart(WrappingOrder):
    """One part of a random split: `count` positions of a permutation, from `start` on.

    The permutation is the same in every epoch and for all parts of a split, so no two parts have a common row.
    """

    inner: Order
    seed: int
    start: int
    count: int
    is_sequential: bool = False
    is_ascending: bool = False

    @property
    def length(self) -> int:
        return self.count

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.inner.rows(epoch, self._permutation(positions + self.start))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        own_steps = [Add(self.start), permutation_step(self._permutation)]
        return join_steps(own_steps, self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("split", self.seed, self.start, self.count, *self.inner.describe())

    @property
    def _permutation(self) -> Permutation:
        return cached_permutation(require_length(self.inner, "split"), derive_key(self.seed, _SPLIT_KEY))


def consecutive_start(order: Order) -> int | None:
    """Return the row at position 0 if the order has consecutive rows, else None.

    If the result is s, position p is row s + p in every epoch.
    """
    start = 0
    while isinstance(order, Span | Take):
        start += order.start if isinstance(order, Span) else 0
        order = order.inner
    return start if order.is_sequential else None


def hash_array(array: Array) -> str:
    """Return a hash of the values of an array, equal on every machine."""
    values = np.ascontiguousarray(array)
    little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(little_endian.view(np.uint8).data).hexdigest()[:16]


def _positions_of(mask: Array) -> PositionTable:
    """Return the positions at which a mask is True.

    The function works in steps, so that it needs no array with 8 bytes for each position.
    """
    dtype: type[np.integer[Any]] = np.uint32 if len(mask) <= 1 << 32 else np.int64
    table, count = np.empty(np.count_nonzero(mask), dtype), 0
    for start in range(0, len(mask), _STEP_ROWS):
        found = np.flatnonzero(mask[start : start + _STEP_ROWS])
        table[count : count + len(found)] = found + start
        count += len(found)
    return table


def _hash_mask(mask: Array) -> str:
    return f"mask {hash_array(np.packbits(mask))}"


def _hash_ascending(table: PositionTable, length: int) -> str:
    """Return a hash of ascending positions below `length`, without repetitions."""
    if length > 8 * table.nbytes:  # a mask would have more bytes than the table
        return hash_array(table)
    mask = np.zeros(length, bool)
    mask[table] = True
    return _hash_mask(mask)


def _has_repeats(table: PositionTable, length: int) -> bool:
    """Return whether a table of positions below `length` lists a position several times."""
    if length > 8 * len(table):  # a mask would need more memory and time than a sort
        return len(np.unique(table)) < len(table)
    is_listed = np.zeros(length, bool)
    is_listed[table] = True
    return int(np.count_nonzero(is_listed)) < len(table)


def _narrow(positions: Positions, length: int) -> PositionTable:
    """Return positions below `length` as uint32 if possible, which needs half of the memory."""
    return positions.astype(np.uint32 if length <= 1 << 32 else np.int64, copy=False)
