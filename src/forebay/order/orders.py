"""Row orders: pure functions from (seed, epoch, position) to a row number.

A pipeline has one global order per epoch. Each pipeline call (`shuffle`, `take`, `repeat`) wraps the previous order.
An order maps its positions to positions of its inner order, down to the row numbers of the source.

    Sequential       position p is row p
    Shuffled         a new permutation of the inner order in each epoch
    BlockShuffled    blocks of rows in shuffled order, with the rows of a few blocks mixed
    Take             only the first n positions of the inner order
    Repeated         several passes over the inner order, each with its own epoch number

No order stores more than a small table. So shuffling a billion rows needs no memory, an epoch starts at once, and the
row at any position can be computed directly. Resuming, sharding and worker threads rely on that.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.errors import PipelineError
from forebay.order.block_shuffle import BlockLayout, cached_epoch
from forebay.order.permutation import PermutationParams, Positions, cached_permutation, derive_key
from forebay.order.schedule import MAX_PASSES

__all__ = ["BlockShuffled", "Order", "Repeated", "Sequential", "Shuffled", "Take"]


class Order(Protocol):
    """Maps positions of an epoch to row numbers of the source."""

    @property
    def length(self) -> int | None:
        """Positions in an epoch; None if the epoch never ends."""
        ...

    @property
    def is_sequential(self) -> bool:
        """Whether position p is always row p, so that consecutive positions are consecutive rows."""
        ...

    def rows(self, epoch: int, positions: Positions) -> Positions: ...
    def permutation_params(self, epoch: int) -> PermutationParams | None:
        """Return constants to compute the rows on a device; None for a table."""
        ...

    def describe(self) -> tuple[Any, ...]:
        """Return plain values that identify the order; the fingerprint of a state dict contains them."""
        ...


@dataclass(frozen=True, slots=True)
class Sequential:
    """The order of the rows in the source."""

    length: int
    is_sequential: bool = True

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return positions

    def permutation_params(self, epoch: int) -> PermutationParams | None:
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("natural", self.length)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A full shuffle: an exact permutation of all positions, computed without a table."""

    inner: Order
    seed: int
    is_sequential: bool = False

    @property
    def length(self) -> int:
        return _known_length(self.inner, "shuffle")

    def rows(self, epoch: int, positions: Positions) -> Positions:
        permutation = cached_permutation(self.length, derive_key(self.seed, epoch))
        return self.inner.rows(epoch, permutation(positions))

    def permutation_params(self, epoch: int) -> PermutationParams | None:
        if not self.inner.is_sequential:
            return None
        return cached_permutation(self.length, derive_key(self.seed, epoch)).permutation_params

    def describe(self) -> tuple[Any, ...]:
        return ("shuffled", self.seed, *self.inner.describe())


@dataclass(frozen=True, slots=True)
class BlockShuffled:
    """A block shuffle: blocks in shuffled order, with the rows of open blocks mixed.

    At most `max_open_blocks` blocks are open. A block can start anywhere in the epoch. Two rows of one block are less
    than `max_row_distance` positions apart. Consecutive positions need at most the open blocks and a few that follow.
    """

    inner: Order
    seed: int
    block_rows: int
    max_open_blocks: int
    is_sequential: bool = False

    @property
    def length(self) -> int:
        return _known_length(self.inner, "shuffle")

    @property
    def open_blocks(self) -> int:
        """Blocks whose rows are mixed, at most `max_open_blocks`.

        Slightly fewer blocks may be open, so that blocks open at an even pace.
        """
        return self._layout.open_blocks

    @property
    def max_row_distance(self) -> int:
        """Exclusive upper bound of the positions between two rows of one block."""
        return self._layout.max_row_distance

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """Return the most blocks that `rows` consecutive positions in `passes` passes can need."""
        return self._layout.blocks_within(rows, passes=passes)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        block_shuffle = cached_epoch(self._layout, derive_key(self.seed, epoch))
        return self.inner.rows(epoch, block_shuffle.rows(positions))

    def permutation_params(self, epoch: int) -> PermutationParams | None:
        return None

    def describe(self) -> tuple[Any, ...]:
        sizes = (self.block_rows, self.max_open_blocks, self._layout.open_groups)
        return ("block-shuffled", self.seed, *sizes, *self.inner.describe())

    @property
    def _layout(self) -> BlockLayout:
        return BlockLayout(self.length, self.block_rows, self.max_open_blocks)


@dataclass(frozen=True, slots=True)
class Take:
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

    def permutation_params(self, epoch: int) -> PermutationParams | None:
        return self.inner.permutation_params(epoch)

    def describe(self) -> tuple[Any, ...]:
        return ("first", self.count, *self.inner.describe())


@dataclass(frozen=True, slots=True)
class Repeated:
    """`count` passes over the inner order; None means endless.

    Pass k of epoch e uses the inner epoch e * count + k.
    """

    inner: Order
    count: int | None
    is_sequential: bool = False

    @property
    def length(self) -> int | None:
        return None if self.count is None else self.count * _known_length(self.inner, "repeat")

    def rows(self, epoch: int, positions: Positions) -> Positions:
        length = _known_length(self.inner, "repeat")
        passes = positions // length
        rows = np.empty_like(positions)
        for number in np.unique(passes):
            chosen = passes == number
            inner_epoch = epoch * (self.count or MAX_PASSES) + int(number)
            rows[chosen] = self.inner.rows(inner_epoch, positions[chosen] - number * length)
        return rows

    def permutation_params(self, epoch: int) -> PermutationParams | None:
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.inner.describe())


def _known_length(order: Order, verb: str) -> int:
    if order.length is None:
        raise PipelineError(
            f"{verb}() needs a known number of rows, but the repeat() before it never ends. Call {verb}() first."
        )
    return order.length
