"""Which row comes next: a pure function of (seed, epoch, position).

A pipeline has one global order per epoch. Orders nest the way the verbs were written: each level turns positions of
its own into positions of the level below, down to row numbers of the source.

    natural(n)         position p is row p
    shuffled           a permutation of the level below, drawn anew each epoch
    block-shuffled     blocks of rows in shuffled order, the rows of a few of them mixed
    first              only the first n positions of the level below
    repeated           the level below several times over, each pass an epoch of its own

No level keeps more than a small table, so a billion rows cost nothing to shuffle, an epoch starts at once, and
any position can be asked for: that is what resuming, sharding and threads rest on.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.errors import PipelineError
from forebay.order.block_shuffle import Cut, stretches_of
from forebay.order.permutation import Permutation, Positions, Scramble, derive_key, drawn_permutation

__all__ = [
    "BlockShuffled",
    "First",
    "Natural",
    "Order",
    "Permutation",
    "Positions",
    "Repeated",
    "Scramble",
    "Shuffled",
    "derive_key",
]


class Order(Protocol):
    """Positions of one level to row numbers of the source."""

    @property
    def length(self) -> int | None:
        """Positions in an epoch; None when it never ends."""
        ...

    @property
    def natural(self) -> bool:
        """Whether position p is always row p, so that runs of positions are runs of rows."""
        ...

    def rows(self, epoch: int, positions: Positions) -> Positions: ...
    def scramble(self, epoch: int) -> "Scramble | None":
        """The same as numbers a device can compute rows from by itself; None where it takes a table."""
        ...

    def describe(self) -> tuple[Any, ...]:
        """What the order is, as plain values: equal descriptions give equal orders."""
        ...


@dataclass(frozen=True, slots=True)
class Natural:
    """The order the rows lie in."""

    length: int
    natural: bool = True

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return positions

    def scramble(self, epoch: int) -> "Scramble | None":
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("natural", self.length)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Every row anywhere: an exact permutation of all positions, without a table of them."""

    below: Order
    seed: int
    natural: bool = False

    @property
    def length(self) -> int:
        return _known_length(self.below, "shuffle")

    def rows(self, epoch: int, positions: Positions) -> Positions:
        permutation = drawn_permutation(self.length, derive_key(self.seed, epoch))
        return self.below.rows(epoch, permutation(positions))

    def scramble(self, epoch: int) -> "Scramble | None":
        return drawn_permutation(self.length, derive_key(self.seed, epoch)).scramble if self.below.natural else None

    def describe(self) -> tuple[Any, ...]:
        return ("shuffled", self.seed, *self.below.describe())


@dataclass(frozen=True, slots=True)
class BlockShuffled:
    """Blocks anywhere, the rows of `mix` of them mixed, so that reads stay inside a few blocks at a time.

    How far a row can travel: its block lands anywhere in the epoch; two rows of one block land less than
    `spread_rows` positions apart; and neighbouring positions need no more than `mix` blocks and a few that follow them.
    """

    below: Order
    seed: int
    block_rows: int
    mix: int
    natural: bool = False

    @property
    def length(self) -> int:
        return _known_length(self.below, "shuffle")

    @property
    def open_blocks(self) -> int:
        """Blocks whose rows are mixed: `mix`, or a few less so that they can come and go evenly."""
        return self._cut.open_blocks

    @property
    def spread_rows(self) -> int:
        """More than lies between any two rows of one block."""
        return self._cut.spread_rows

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """The most blocks that so many neighbouring positions can need, if they may reach into so many passes."""
        return self._cut.blocks_within(rows, passes=passes)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        stretches = stretches_of(self._cut, derive_key(self.seed, epoch))
        return self.below.rows(epoch, stretches.rows(positions))

    @property
    def _cut(self) -> Cut:
        return Cut(self.length, self.block_rows, self.mix)

    def scramble(self, epoch: int) -> "Scramble | None":
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("block-shuffled", self.seed, self.block_rows, self.mix, self._cut.turns, *self.below.describe())


@dataclass(frozen=True, slots=True)
class First:
    """The first `count` positions of the level below."""

    below: Order
    count: int

    @property
    def length(self) -> int:
        return self.count if self.below.length is None else min(self.count, self.below.length)

    @property
    def natural(self) -> bool:
        return self.below.natural

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return self.below.rows(epoch, positions)

    def scramble(self, epoch: int) -> "Scramble | None":
        return self.below.scramble(epoch)

    def describe(self) -> tuple[Any, ...]:
        return ("first", self.count, *self.below.describe())


@dataclass(frozen=True, slots=True)
class Repeated:
    """The level below `count` times over (None: for ever); pass k of epoch e is its epoch e * count + k."""

    below: Order
    count: int | None
    natural: bool = False

    @property
    def length(self) -> int | None:
        return None if self.count is None else self.count * _known_length(self.below, "repeat")

    def rows(self, epoch: int, positions: Positions) -> Positions:
        length = _known_length(self.below, "repeat")
        passes = positions // length
        found = np.empty_like(positions)
        for number in np.unique(passes):
            chosen = passes == number
            found[chosen] = self.below.rows(
                epoch * (self.count or 1 << 32) + int(number), positions[chosen] - number * length
            )
        return found

    def scramble(self, epoch: int) -> "Scramble | None":
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.below.describe())


def _known_length(order: Order, verb: str) -> int:
    if order.length is None:
        raise PipelineError(
            f"{verb}() needs a known number of rows, but repeat() before it never ends: call {verb}() first."
        )
    return order.length
