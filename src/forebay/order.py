"""Which row comes next: a pure function of (seed, epoch, position).

A pipeline has one global order per epoch. Orders nest the way the verbs were written: each level turns positions of
its own into positions of the level below, down to row numbers of the source.

    natural(n)         position p is row p
    shuffled           a permutation of the level below, drawn anew each epoch
    block-shuffled     blocks of rows in shuffled order, rows mixed inside a window of a few blocks
    first              only the first n positions of the level below
    repeated           the level below several times over, each pass an epoch of its own

No level keeps more than a small table, so a billion rows cost nothing to shuffle, an epoch starts at once, and
any position can be asked for: that is what resuming, sharding and threads rest on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from forebay.errors import PipelineError
from forebay.spec import Array

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

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


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
        permutation = _permutation(self.length, derive_key(self.seed, epoch))
        return self.below.rows(epoch, permutation(positions))

    def scramble(self, epoch: int) -> "Scramble | None":
        return _permutation(self.length, derive_key(self.seed, epoch)).scramble if self.below.natural else None

    def describe(self) -> tuple[Any, ...]:
        return ("shuffled", self.seed, *self.below.describe())


@dataclass(frozen=True, slots=True)
class BlockShuffled:
    """Blocks anywhere, rows mixed inside a window of `mix` blocks, so that reads stay inside a few blocks at a time.

    How far a row can travel: its block lands anywhere in the epoch; two rows of one block land less than
    `window_rows` positions apart; and at any time all reads fall into `mix` blocks.
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
    def window_rows(self) -> int:
        return self.block_rows * self.mix

    def rows(self, epoch: int, positions: Positions) -> Positions:
        table = _block_table(self.length, self.block_rows, self.mix, derive_key(self.seed, epoch))
        windows = np.searchsorted(table.window_starts, positions, side="right") - 1
        found = np.empty_like(positions)
        for window, chosen in _by_value(windows):
            found[chosen] = table.rows(window, positions[chosen])
        return self.below.rows(epoch, found)

    def scramble(self, epoch: int) -> "Scramble | None":
        return None

    def describe(self) -> tuple[Any, ...]:
        return ("block-shuffled", self.seed, self.block_rows, self.mix, *self.below.describe())


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


@dataclass(frozen=True, slots=True)
class Scramble:
    """A computed permutation of range(length), as plain numbers: add the term, then a round for each factor.

    A round multiplies, keeps the bits of the mask, and folds the number onto itself by the shift; what comes out at
    `length` or beyond goes through everything again.
    """

    length: int
    mask: int
    term: int
    factors: tuple[int, ...]
    shift: int


class Permutation:
    """A permutation of range(length), drawn by a key; called with positions, it gives where they go.

    Up to `TABLE_LENGTH` it is a table: the ranks of random numbers. Beyond, it is computed: an addition, then rounds
    of multiply and shift, each of which is one-to-one on numbers of k bits; what falls outside the range
    is sent through again until it falls inside, which keeps the whole one-to-one. Only raw bits of Philox are
    used, which NumPy promises never to change, so an order is the same on every machine and version.
    """

    TABLE_LENGTH = 1 << 13  # below, few bits leave multiplying too little to mix
    _ROUNDS = 5

    def __init__(self, length: int, key: int) -> None:
        self._length = length
        self._table: Positions | None = None
        raw = np.random.Philox(key=key)
        if length <= self.TABLE_LENGTH:
            self._table = _ranks(raw.random_raw(length))
            return
        bits = (length - 1).bit_length()
        word: type[np.unsignedinteger[Any]] = np.uint32 if bits <= 32 else np.uint64
        constants = raw.random_raw(self._ROUNDS + 1).astype(word)
        self._word = word
        self._mask = word((1 << bits) - 1)
        self._term, self._factors = constants[0], constants[1:] | word(1)  # odd, so that multiplying can be undone
        self._shift = word((bits + 1) // 2)

    @cached_property
    def scramble(self) -> Scramble | None:
        """What it is computed from; None where it is a table."""
        if self._table is not None:
            return None
        factors = tuple(map(int, self._factors))
        return Scramble(self._length, int(self._mask), int(self._term), factors, int(self._shift))

    def __call__(self, positions: Positions) -> Positions:
        if self._table is not None:
            return self._table[positions]
        numbers = self._scramble(positions.astype(self._word))
        outside = np.flatnonzero(numbers >= self._length)
        while outside.size:
            again = self._scramble(numbers[outside])
            numbers[outside] = again
            outside = outside[again >= self._length]
        return numbers.astype(np.int64)

    def _scramble(self, numbers: Array) -> Array:
        """One-to-one on numbers of k bits, in place."""
        shifted = np.empty_like(numbers)
        numbers += self._term
        for factor in self._factors:
            numbers *= factor
            numbers &= self._mask
            np.right_shift(numbers, self._shift, out=shifted)
            numbers ^= shifted
        return numbers


def _ranks(numbers: Array) -> Positions:
    """Which number comes first, second, and so on; equal ones as they stand."""
    order = np.argsort(numbers)  # several times as fast as a stable sort, and the same where no two are equal
    ranked = numbers[order]
    if (ranked[1:] == ranked[:-1]).any():
        order = np.argsort(numbers, kind="stable")
    return order.astype(np.int64, copy=False)


@lru_cache(maxsize=16)
def derive_key(*parts: int) -> int:
    """One 128-bit key from several numbers: near numbers give unrelated keys."""
    words = np.random.SeedSequence([part & (2**64 - 1) for part in parts]).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@dataclass(frozen=True, slots=True)
class _BlockTable:
    """One epoch of a block shuffle: the order of its blocks, and where each window of blocks begins."""

    block_rows: int
    mix: int
    key: int
    blocks: Positions  # first row of each block, in shuffled order
    block_starts: Positions  # position where each block of that order begins, and the end
    window_starts: Positions

    def rows(self, window: int, positions: Positions) -> Positions:
        """Row numbers at positions that all lie in this window."""
        first = window * self.mix
        last = min(first + self.mix, len(self.blocks))
        start = self.block_starts[first]
        permutation = _permutation(int(self.block_starts[last] - start), derive_key(self.key, window))
        mixed = permutation(positions - start) + start
        if self.block_starts[last] - start == (last - first) * self.block_rows:  # none of them is the short one
            block = (mixed - start) // self.block_rows + first
        else:
            block = np.searchsorted(self.block_starts[first + 1 : last + 1], mixed, side="right") + first
        found: Positions = self.blocks[block] + (mixed - self.block_starts[block])
        return found


@lru_cache(maxsize=4)
def _block_table(length: int, block_rows: int, mix: int, key: int) -> _BlockTable:
    count = -(-length // block_rows)
    blocks = Permutation(count, key)(np.arange(count, dtype=np.int64)) * block_rows
    lengths = np.minimum(block_rows, length - blocks)  # the last block of the data may be short, wherever it lands
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return _BlockTable(block_rows, mix, key, blocks, starts, starts[:-1:mix])


@lru_cache(maxsize=16)
def _permutation(length: int, key: int) -> Permutation:
    return Permutation(length, key)


def _by_value(values: Positions) -> Iterator[tuple[int, Any]]:
    """Each value, and where it stands: a slice of values that never fall, as those of neighbouring positions."""
    if (values[1:] < values[:-1]).any():
        yield from ((int(value), values == value) for value in np.unique(values))
        return
    seams = np.flatnonzero(values[1:] != values[:-1]) + 1
    for start, stop in pairwise([0, *seams.tolist(), len(values)] if len(values) else []):
        yield int(values[start]), slice(start, stop)


def _known_length(order: Order, verb: str) -> int:
    if order.length is None:
        raise PipelineError(
            f"{verb}() needs a known number of rows, but repeat() before it never ends: call {verb}() first."
        )
    return order.length
