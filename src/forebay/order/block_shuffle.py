"""One epoch of a block shuffle: the row at each position, with few open blocks.

The epoch visits the blocks in shuffled order. Several consecutive blocks form a block group. The epoch is a sequence of
segments. In each segment, every open block group contributes an equal share of its rows, and the segment mixes these
rows. Then the oldest block group is used up and the next one opens:

    segment      0      1    2    3
    group 0   3 of 3    .    .    .        3 open block groups, 5 block groups in total
    group 1   2 of 3    1    .    .
    group 2   1 of 3    1    1    .
    group 3      .      1    1  1 of 3
    group 4      .      .    1  2 of 3

Blocks are therefore read one after the other at an even pace, and the reader holds little more than the mixed blocks.
The first segment takes larger shares so that the block groups end one after the other. The last segment takes all
remaining rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.order.permutation import Permutation, Positions, cached_permutation, derive_key

__all__ = ["BlockLayout", "BlockShuffleEpoch", "cached_epoch"]

MAX_OPEN_GROUPS = 8  # more groups shorten segments; with fewer, the reader holds more rows besides the mixed ones
MIN_SEGMENT_ROWS = 1024  # where possible, because each segment costs about 50 us
_BLOCKS, _GROUPS, _SEGMENTS = range(3)  # parts of a derived key: what the key permutes


@dataclass(frozen=True)
class BlockLayout:
    """How rows are divided into blocks and block groups; the same in every epoch."""

    length: int
    block_rows: int
    max_open_blocks: int

    @property
    def blocks(self) -> int:
        return -(-self.length // self.block_rows)

    @cached_property
    def open_groups(self) -> int:
        """Number of block groups open at a time; each stays open for as many segments.

        It is 1 if segments would be too short.
        """
        mixed_rows = self.max_open_blocks * self.block_rows
        most = min(self.max_open_blocks, MAX_OPEN_GROUPS, max(1, mixed_rows // MIN_SEGMENT_ROWS))
        candidates = range(-(-most // 2), most + 1)
        return max(candidates, key=lambda groups: (self.max_open_blocks // groups * groups, groups))

    @property
    def group_blocks(self) -> int:
        return self.max_open_blocks // self.open_groups

    @property
    def group_rows(self) -> int:
        return self.group_blocks * self.block_rows

    @property
    def open_blocks(self) -> int:
        """Blocks whose rows are mixed, at most `max_open_blocks`.

        Slightly fewer blocks may be open, so that all block groups are equal.
        """
        return self.blocks if self.blocks <= self.max_open_blocks else self.open_groups * self.group_blocks

    @property
    def block_groups(self) -> int:
        return -(-self.blocks // self.group_blocks)

    @property
    def max_row_distance(self) -> int:
        """Exclusive upper bound of the positions between two rows of one block.

        Block groups of the first and last segments are open the longest.
        """
        if self.block_groups < 2 * self.open_groups:
            return self.length
        rounding = self.open_groups  # shares are rounded up
        return min(self.length, self.group_rows * (3 * self.open_groups - 1) // 2 + rounding)

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """Return the most blocks that `rows` consecutive positions in `passes` passes can need."""
        if self.blocks <= self.max_open_blocks:
            return self.blocks
        missing_rows = self.block_groups * self.group_rows - self.length  # that the last block group lacks
        groups = passes * (self.open_groups + 1) + (rows + passes * missing_rows) // self.group_rows
        return min(self.blocks, groups * self.group_blocks)


class BlockShuffleEpoch:
    """The segments of one epoch, stored as tables of block groups."""

    def __init__(self, layout: BlockLayout, key: int) -> None:
        self._layout, self._key = layout, key
        blocks, all_open = layout.blocks, layout.blocks <= layout.max_open_blocks
        self._open_groups, group_blocks = (1, blocks) if all_open else (layout.open_groups, layout.group_blocks)
        shuffled_blocks = Permutation(blocks, derive_key(key, _BLOCKS))(np.arange(blocks))
        self._first_rows = shuffled_blocks * layout.block_rows
        lengths = np.minimum(layout.block_rows, layout.length - self._first_rows)  # only the last block may be short
        short = int(np.argmin(lengths))
        self._short_end = short * layout.block_rows + int(lengths[short])
        self._missing_rows = layout.block_rows - lengths[short]
        self._group_lengths: Positions = np.add.reduceat(lengths, np.arange(0, blocks, group_blocks))
        self._group_starts = np.concatenate([[0], np.cumsum(self._group_lengths)])
        self._segment_ends = self._compute_segment_ends()
        self._group_shifts = _draw_shifts(self._group_lengths, derive_key(key, _GROUPS))
        self._segment_shifts = _draw_shifts(np.diff(self._segment_ends, prepend=0), derive_key(key, _SEGMENTS))

    def rows(self, positions: Positions) -> Positions:
        """Return the row numbers at these positions, in any order."""
        rows = np.empty_like(positions)
        for segment, selection in self._split_by_segment(positions):
            rows[selection] = self._segment_rows(segment, positions[selection])
        return rows

    def _compute_segment_ends(self) -> Positions:
        lengths, open_groups = self._group_lengths, self._open_groups
        count = len(lengths) - open_groups + 1  # without the last segment, which exists only if rows remain
        ends = self._group_starts[1 : count + 1].copy()
        for later in range(1, open_groups):  # shares already taken from block groups that stay open
            ends += lengths[later : later + count] * (open_groups - later) // open_groups
        return ends if ends[-1] == self._layout.length else np.append(ends, self._layout.length)

    def _split_by_segment(self, positions: Positions) -> Iterator[tuple[int, Any]]:
        """Yield each segment and the selection of its positions.

        The selection is a slice if positions never decrease (the usual case), else a mask.
        """
        if (positions[1:] < positions[:-1]).any():
            segments = np.searchsorted(self._segment_ends, positions, side="right")
            yield from ((int(segment), segments == segment) for segment in np.unique(segments))
        elif len(positions):
            first, last = np.searchsorted(self._segment_ends, positions[[0, -1]], side="right")
            bounds = np.searchsorted(positions, self._segment_ends[first:last])
            for offset, (start, stop) in enumerate(pairwise([0, *bounds.tolist(), len(positions)])):
                yield int(first) + offset, slice(start, stop)

    def _segment_rows(self, segment: int, positions: Positions) -> Positions:
        """Return the row numbers at positions that all lie in one segment."""
        groups, firsts, counts = self._shares(segment)
        ends = np.cumsum(counts)
        length = int(ends[-1])
        start = self._segment_ends[segment] - length
        places = self._mix(positions - start, length, _SEGMENTS, self._segment_shifts[:, segment])
        shares = np.repeat(np.arange(len(groups)), counts)[places]  # index of the block group that gives each row
        offsets = places - (ends - counts - firsts)[shares]
        return self._row_numbers(self._places_in_groups(groups, shares, offsets))

    def _shares(self, segment: int) -> tuple[Positions, Positions, Positions]:
        """Return the open block groups, and first row and row count taken from each."""
        open_groups, last = self._open_groups, len(self._segment_ends) - 1
        groups = np.arange(segment, min(segment + open_groups, len(self._group_lengths)))
        ages = segment - groups + open_groups  # segments of each block group up to and including this one
        taken_before = 0 if segment == 0 else ages - 1
        taken_after = open_groups if segment == last else ages
        lengths = self._group_lengths[groups]
        firsts = lengths * taken_before // open_groups
        return groups, firsts, lengths * taken_after // open_groups - firsts

    def _places_in_groups(self, groups: Positions, shares: Positions, offsets: Positions) -> Positions:
        """Return the place of each row in the concatenation of the shuffled blocks."""
        lengths, starts = self._group_lengths[groups], self._group_starts[groups]
        shifts = self._group_shifts[:, groups]
        if (lengths == lengths[0]).all():
            places = self._mix(offsets, int(lengths[0]), _GROUPS, shifts[:, shares])
            places += starts[shares]
            return places
        places = np.empty_like(offsets)
        for share in range(len(groups)):
            chosen = shares == share
            mixed = self._mix(offsets[chosen], int(lengths[share]), _GROUPS, shifts[:, share])
            places[chosen] = mixed + starts[share]
        return places

    def _mix(self, places: Positions, length: int, key_kind: int, shifts: Positions) -> Positions:
        """Permute places with two permutations, each after its own shift.

        All block groups (or segments) of one length share these permutations. A separate permutation for each would
        have to be computed completely, even for a shard that needs only a few of its rows.
        """
        for part in (0, 1):
            shared = cached_permutation(length, derive_key(self._key, key_kind, part))
            places = shared(_wrap(places + shifts[part], length))
        return places

    def _row_numbers(self, places: Positions) -> Positions:
        block_rows = self._layout.block_rows
        places = places + self._missing_rows * (places >= self._short_end)  # as if the short block were full
        blocks = places // block_rows
        return self._first_rows[blocks] + (places - blocks * block_rows)


def _draw_shifts(lengths: Positions, key: int) -> Positions:
    """Draw two random numbers below each length."""
    raw = np.random.Philox(key=key).random_raw((2, len(lengths)))
    return (raw % lengths.astype(np.uint64)).astype(np.int64)


def _wrap(places: Positions, length: int) -> Positions:
    """Reduce places from below 2 * length to below length, in place."""
    places -= length
    places += (places >> 63) & length  # the shift gives all ones for a negative number
    return places


@lru_cache(maxsize=4)
def cached_epoch(layout: BlockLayout, key: int) -> BlockShuffleEpoch:
    """Return the tables of an epoch, from a cache of recently used ones."""
    return BlockShuffleEpoch(layout, key)
