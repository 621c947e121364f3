"""Row orders: pure functions from (seed, epoch, position) to a row number.

A pipeline has one order of the rows of all shards. Each pipeline call (`shuffle`, `take`, `repeat`) makes a new order
that wraps the previous one, its inner order. An order maps its positions to positions of its inner order. The innermost
order maps positions to row numbers of the source.

    Sequential       position p is row p
    EpochViews       position p is another view of row p in each epoch (`epoch_views.py`)
    Windows          position p is window p of a series
    Shuffled         a new permutation of the inner order in each epoch
    BlockShuffled    blocks of rows in shuffled order, with the rows of a few blocks mixed
    Take             only the first n positions of the inner order
    Repeated         several passes over the inner order, each as a new epoch of the inner order
    Span             consecutive positions of the inner order (`choices.py`)
    Selected         a table of positions of the inner order (`choices.py`)
    SplitPart        a part of a fixed permutation of the inner order (`choices.py`)
    Sampled          positions drawn by weight, new ones in each epoch (`sampling.py`)

Of these orders, only `Selected` and `Sampled` store a table with an entry for each row, except that a permutation of up
to 8,192 rows is a table too. So a shuffle of a billion rows needs little memory, and an epoch starts at once. Every
order finds the row at any position without the earlier positions. Resumed runs, shards and worker threads need this.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from forebay.errors import PipelineError
from forebay.order.block_shuffle import BlockLayout, cached_epoch
from forebay.order.device_steps import MAX_DEVICE_PARTS, DeviceSteps, branch_steps, join_steps, permutation_step
from forebay.order.permutation import Permutation, Positions, cached_permutation, derive_key
from forebay.order.schedule import MAX_PASSES

__all__ = [
    "BlockShuffled",
    "Order",
    "Repeated",
    "Sequential",
    "Shuffled",
    "Take",
    "Windows",
    "WrappingOrder",
    "order_chain",
    "require_length",
]


class Order(Protocol):
    """Maps positions of an epoch to row numbers of the source."""

    @property
    def inner(self) -> "Order | None":
        """The order that this order wraps; None for the innermost order."""
        ...

    @property
    def length(self) -> int | None:
        """Number of positions in an epoch; None if the epoch never ends."""
        ...

    @property
    def is_sequential(self) -> bool:
        """Whether position p is always row p, so that consecutive positions are consecutive rows."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether every epoch has the same row at each position."""
        ...

    @property
    def is_ascending(self) -> bool:
        """Whether row numbers never decrease within an epoch."""
        ...

    @property
    def repeats_rows(self) -> bool:
        """Whether a row may occur several times in an epoch."""
        ...

    @property
    def epoch_nbytes(self) -> int:
        """Upper limit of the bytes for tables that the order computes in each epoch.

        The limit includes temporary arrays of the computation. Tables that are the same in every epoch do not count,
        because they belong to the pipeline.
        """
        ...

    def rows(self, epoch: int, positions: Positions) -> Positions:
        """Return the row numbers at these positions."""
        ...

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        """Return the steps with which a device computes row numbers; None if it cannot."""
        ...

    def describe(self) -> tuple[Any, ...]:
        """Return values that identify the order, for the fingerprint of a state dict."""
        ...


class WrappingOrder:
    """Base class of orders with an inner order.

    A property that a subclass does not define has the value of the inner order.
    """

    __slots__ = ()
    inner: Order

    @property
    def is_fixed(self) -> bool:
        return self.inner.is_fixed

    @property
    def is_ascending(self) -> bool:
        return self.inner.is_ascending

    @property
    def repeats_rows(self) -> bool:
        return self.inner.repeats_rows

    @property
    def epoch_nbytes(self) -> int:
        return self.inner.epoch_nbytes


@dataclass(frozen=True, slots=True)
class Sequential:
    """The order of the rows in the source."""

    inner: ClassVar[None] = None
    epoch_nbytes: ClassVar[int] = 0
    length: int
    is_sequential: bool = True
    is_fixed: bool = True
    is_ascending: bool = True
    repeats_rows: bool = False

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return positions

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return ()

    def describe(self) -> tuple[Any, ...]:
        return ("natural", self.length)


@dataclass(frozen=True, slots=True)
class Windows(Sequential):
    """The order of the windows in a series.

    Window p begins at row `first + p * stride` of the series. `describe` includes `first` and `stride`.
    """

    first: int = 0
    stride: int = 1

    def describe(self) -> tuple[Any, ...]:
        return ("windows", self.length, self.first, self.stride)


@dataclass(frozen=True, slots=True)
class Shuffled(WrappingOrder):
    """A full shuffle: an exact permutation of all positions."""

    inner: Order
    seed: int
    is_sequential: bool = False
    is_fixed: bool = False
    is_ascending: bool = False

    @property
    def length(self) -> int:
        return require_length(self.inner, "shuffle")

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.inner.rows(epoch, self._permutation(epoch)(positions))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return join_steps([permutation_step(self._permutation(epoch))], self.inner.device_steps(epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("shuffled", self.seed, *self.inner.describe())

    def _permutation(self, epoch: int) -> Permutation:
        return cached_permutation(self.length, derive_key(self.seed, epoch))


@dataclass(frozen=True, slots=True)
class BlockShuffled(WrappingOrder):
    """A block shuffle: blocks in shuffled order, with the rows of open blocks mixed.

    A block is open from its first to its last row in the epoch. At most `max_open_blocks` blocks are open at a time.
    Two rows of one block are less than `max_row_distance` positions apart.
    """

    inner: Order
    seed: int
    block_rows: int
    max_open_blocks: int
    is_sequential: bool = False
    is_fixed: bool = False
    is_ascending: bool = False

    @property
    def length(self) -> int:
        return require_length(self.inner, "shuffle")

    @property
    def open_blocks(self) -> int:
        """Number of blocks whose rows are mixed, at most `max_open_blocks`."""
        return self._layout.open_blocks

    @property
    def max_row_distance(self) -> int:
        """Exclusive upper bound of the distance between two rows of one block, in positions."""
        return self._layout.max_row_distance

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """Return an upper bound of the number of blocks that `rows` consecutive positions use.

        The positions may span `passes` passes.
        """
        return self._layout.blocks_within(rows, passes=passes)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        block_shuffle = cached_epoch(self._layout, derive_key(self.seed, epoch))
        return self.inner.rows(epoch, block_shuffle.rows(positions))

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return None

    def describe(self) -> tuple[Any, ...]:
        sizes = (self.block_rows, self.max_open_blocks, self._layout.open_groups)
        return ("block-shuffled", self.seed, *sizes, *self.inner.describe())

    @property
    def _layout(self) -> BlockLayout:
        return BlockLayout(self.length, self.block_rows, self.max_open_blocks)


@dataclass(frozen=True, slots=True)
class Take(WrappingOrder):
    """The first `count` positions of the inner order."""

    inner: Order
    count: int

    @property
    def length(self) -> int:
        return self.count if self.inner.length is None else min(self.count, self.inner.length)

    @property
    def is_sequential(self) -> bool:
        return self.inner.is_sequential

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.inner.rows(epoch, positions)

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return self.inner.device_steps(epoch)

    def describe(self) -> tuple[Any, ...]:
        return ("first", self.count, *self.inner.describe())


@dataclass(frozen=True, slots=True)
class Repeated(WrappingOrder):
    """`count` passes over the inner order; None means endless.

    Pass k of epoch e is epoch e * count + k of the inner order. For an endless order, `MAX_PASSES` replaces `count`.
    """

    inner: Order
    count: int | None
    is_sequential: bool = False
    is_ascending: bool = False

    @property
    def length(self) -> int | None:
        return None if self.count is None else self.count * require_length(self.inner, "repeat")

    @property
    def repeats_rows(self) -> bool:
        return self.count != 1 or self.inner.repeats_rows

    def rows(self, epoch: int, positions: Positions) -> Positions:
        length = require_length(self.inner, "repeat")
        if len(positions) == 0:
            return positions
        first, last = int(positions.min()) // length, int(positions.max()) // length
        if first == last:
            return self.inner.rows(self._inner_epoch(epoch, first), positions - first * length)
        passes, offsets = np.divmod(positions, length)
        if self.inner.is_sequential:  # every pass has the same rows
            return self.inner.rows(epoch, offsets)
        rows = np.empty_like(positions)
        by_pass = np.argsort(passes, kind="stable")
        for part in np.split(by_pass, np.flatnonzero(np.diff(passes[by_pass])) + 1):
            rows[part] = self.inner.rows(self._inner_epoch(epoch, int(passes[part[0]])), offsets[part])
        return rows

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        if self.count is None or self.count > MAX_DEVICE_PARTS:
            return None
        length = require_length(self.inner, "repeat")
        starts = [number * length for number in range(self.count)]
        parts = [self.inner.device_steps(self._inner_epoch(epoch, number)) for number in range(self.count)]
        return branch_steps(starts, [start + length for start in starts], parts)

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.inner.describe())

    def _inner_epoch(self, epoch: int, number: int) -> int:
        return epoch * (self.count or MAX_PASSES) + number


def order_chain(order: Order) -> Iterator[Order]:
    """Yield an order and all orders inside it, from the outermost to the innermost."""
    link: Order | None = order
    while link is not None:
        yield link
        link = link.inner


def require_length(order: Order, verb: str) -> int:
    """Return the length of an order, or raise PipelineError if it is endless."""
    if order.length is None:
        raise PipelineError(
            f"{verb}() needs a known number of rows, but the repeat() before it never ends. Pass a count to that "
            f"repeat(), or call {verb}() before it."
        )
    return order.length
