"""One epoch of a shuffle by blocks: which row stands where, when only some blocks may be open at a time.

Blocks come in shuffled order, some of them together as a lot. The epoch goes by stretches. In each of them every
open lot gives an equal share of its rows, and these are mixed; then the oldest lot is used up and the next is opened:

    stretch      0      1    2    3
    lot 0     3 of 3    .    .    .        with 3 lots open at a time, and 5 in all
    lot 1     2 of 3    1    .    .
    lot 2     1 of 3    1    1    .
    lot 3        .      1    1  1 of 3
    lot 4        .      .    1  2 of 3

So blocks are read one after the other at an even pace, and little more must be held than what is mixed. The first
stretch takes what makes the lots end one after the other, the last takes all that is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.order.permutation import Permutation, Positions, derive_key, drawn_permutation

__all__ = ["Cut", "Stretches", "stretches_of"]

MOST_TURNS = 8  # more, and stretches are shorter; fewer, and more must be held beside what is mixed
STRETCH_ROWS = 1024  # at least, where that can be: each costs some 50 us
_BLOCKS, _LOTS, _STRETCHES = range(3)  # what keys are for


@dataclass(frozen=True)
class Cut:
    """How rows are cut into blocks and lots: the same in every epoch."""

    length: int
    block_rows: int
    mix: int

    @property
    def blocks(self) -> int:
        return -(-self.length // self.block_rows)

    @cached_property
    def turns(self) -> int:
        """Stretches that a lot lasts, which is how many lots are open; 1 where stretches would be too short."""
        most = min(self.mix, MOST_TURNS, max(1, self.mix * self.block_rows // STRETCH_ROWS))
        return max(range(-(-most // 2), most + 1), key=lambda turns: (self.mix // turns * turns, turns))

    @property
    def lot_blocks(self) -> int:
        return self.mix // self.turns

    @property
    def lot_rows(self) -> int:
        return self.lot_blocks * self.block_rows

    @property
    def open_blocks(self) -> int:
        """Blocks whose rows are mixed: `mix`, or a few less so that lots are alike."""
        return self.blocks if self.blocks <= self.mix else self.turns * self.lot_blocks

    @property
    def lots(self) -> int:
        return -(-self.blocks // self.lot_blocks)

    @property
    def spread_rows(self) -> int:
        """More than lies between two rows of one block: the longest are open those of the first and last stretches."""
        if self.lots < 2 * self.turns:
            return self.length
        return min(self.length, self.lot_rows * (3 * self.turns - 1) // 2 + self.turns)  # of shares that are rounded up

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """The most blocks that so many neighbouring positions can need, if they may reach into so many passes."""
        if self.blocks <= self.mix:
            return self.blocks
        missing = self.lots * self.lot_rows - self.length  # lots may be short by so many rows in all
        lots = passes * (self.turns + 1) + (rows + passes * missing) // self.lot_rows
        return min(self.blocks, lots * self.lot_blocks)


class Stretches:
    """The stretches of one epoch, as tables of lots; asked for rows, position by position."""

    def __init__(self, cut: Cut, key: int) -> None:
        self._cut, self._key = cut, key
        count, all_open = cut.blocks, cut.blocks <= cut.mix
        self._turns, lot_blocks = (1, count) if all_open else (cut.turns, cut.lot_blocks)
        self._firsts = Permutation(count, derive_key(key, _BLOCKS))(np.arange(count)) * cut.block_rows
        lengths = np.minimum(cut.block_rows, cut.length - self._firsts)  # the last block may be short, where it landed
        short = int(np.argmin(lengths))
        self._short_end, self._missing = short * cut.block_rows + int(lengths[short]), cut.block_rows - lengths[short]
        self._lot_lengths: Positions = np.add.reduceat(lengths, np.arange(0, count, lot_blocks))
        self._lot_starts = np.concatenate([[0], np.cumsum(self._lot_lengths)])
        self._ends = self._stretch_ends()
        self._lot_shifts = _drawn_shifts(self._lot_lengths, derive_key(key, _LOTS))
        self._stretch_shifts = _drawn_shifts(np.diff(self._ends, prepend=0), derive_key(key, _STRETCHES))

    def rows(self, positions: Positions) -> Positions:
        """Row numbers at any positions."""
        found = np.empty_like(positions)
        for stretch, chosen in self._by_stretch(positions):
            found[chosen] = self._rows(stretch, positions[chosen])
        return found

    def _by_stretch(self, positions: Positions) -> Iterator[tuple[int, Any]]:
        """Each stretch that positions lie in, and which of them do: a slice where they never fall, as is usual."""
        if (positions[1:] < positions[:-1]).any():
            stretches = np.searchsorted(self._ends, positions, side="right")
            yield from ((int(stretch), stretches == stretch) for stretch in np.unique(stretches))
        elif len(positions):
            first, last = np.searchsorted(self._ends, positions[[0, -1]], side="right")
            seams = np.searchsorted(positions, self._ends[first:last])
            for number, (start, stop) in enumerate(pairwise([0, *seams.tolist(), len(positions)])):
                yield int(first) + number, slice(start, stop)

    def _rows(self, stretch: int, positions: Positions) -> Positions:
        """Row numbers at positions that all lie in this stretch."""
        lots, firsts, counts = self._shares(stretch)
        ends = np.cumsum(counts)
        length = int(ends[-1])
        places = self._mixed(
            positions - (self._ends[stretch] - length), length, _STRETCHES, self._stretch_shifts[:, stretch]
        )
        shares = np.repeat(np.arange(len(lots)), counts)[places]  # which lot gives the row
        offsets = places - (ends - counts - firsts)[shares]
        return self._row_numbers(self._within(lots, shares, offsets))

    def _shares(self, stretch: int) -> tuple[Positions, Positions, Positions]:
        """The lots that are open, and of the rows of each the first that is taken and how many are."""
        turns, last = self._turns, len(self._ends) - 1
        lots = np.arange(stretch, min(stretch + turns, len(self._lot_lengths)))
        ages = stretch - lots + turns  # how many of its turns each has had after this stretch
        begun = 0 if stretch == 0 else ages - 1
        ended = turns if stretch == last else ages
        lengths = self._lot_lengths[lots]
        firsts = lengths * begun // turns
        return lots, firsts, lengths * ended // turns - firsts

    def _stretch_ends(self) -> Positions:
        lengths, turns = self._lot_lengths, self._turns
        count = len(lengths) - turns + 1  # without the last, if there is something left for it
        ends = self._lot_starts[1 : count + 1].copy()
        for ahead in range(1, turns):  # what was taken of lots that are still open
            ends += lengths[ahead : ahead + count] * (turns - ahead) // turns
        return ends if ends[-1] == self._cut.length else np.append(ends, self._cut.length)

    def _within(self, lots: Positions, shares: Positions, offsets: Positions) -> Positions:
        """Where the rows that each lot gives as its n-th lie, if blocks are laid end to end as they come."""
        lengths, starts, shifts = self._lot_lengths[lots], self._lot_starts[lots], self._lot_shifts[:, lots]
        if (lengths == lengths[0]).all():
            places = self._mixed(offsets, int(lengths[0]), _LOTS, shifts[:, shares])
            places += starts[shares]
            return places
        found = np.empty_like(offsets)
        for share in range(len(lots)):
            chosen = shares == share
            found[chosen] = self._mixed(offsets[chosen], int(lengths[share]), _LOTS, shifts[:, share]) + starts[share]
        return found

    def _mixed(self, places: Positions, length: int, what: int, shifts: Positions) -> Positions:
        """Places permuted by two permutations that everything of this length shares, each after a shift of its own.

        A permutation of its own for each would have to be made whole, also for a shard that has few of its rows.
        """
        for part in (0, 1):
            shared = drawn_permutation(length, derive_key(self._key, what, part))
            places = shared(_wrapped(places + shifts[part], length))
        return places

    def _row_numbers(self, places: Positions) -> Positions:
        block_rows = self._cut.block_rows
        places = places + self._missing * (places >= self._short_end)  # as if the short block were whole
        blocks = places // block_rows
        return self._firsts[blocks] + (places - blocks * block_rows)


def _drawn_shifts(lengths: Positions, key: int) -> Positions:
    """Two numbers for each length, below it."""
    raw = np.random.Philox(key=key).random_raw((2, len(lengths)))
    return (raw % lengths.astype(np.uint64)).astype(np.int64)


def _wrapped(places: Positions, length: int) -> Positions:
    """Below the length again, after less than it was added."""
    places -= length
    places += (places >> 63) & length  # all bits are set where it is below zero
    return places


@lru_cache(maxsize=4)
def stretches_of(cut: Cut, key: int) -> Stretches:
    """Those of an epoch, made once for as long as it is walked through."""
    return Stretches(cut, key)
