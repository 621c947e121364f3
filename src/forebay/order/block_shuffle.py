"""One epoch of a block shuffle: the row at each position, with few open blocks.

The epoch visits the blocks in shuffled order. Several blocks that follow each other in this order form a block group.
The epoch is a sequence of segments. In each segment, every open block group contributes an equal share of its rows, and
the segment mixes these rows. Then the oldest block group has no rows left, and the next block group opens. This example
shows how many of its three shares each block group contributes to each segment:

    segment      0      1    2    3
    group 0   3 of 3    .    .    .        3 open block groups, 5 block groups in total
    group 1   2 of 3    1    .    .
    group 2   1 of 3    1    1    .
    group 3      .      1    1  1 of 3
    group 4      .      .    1  2 of 3

So a reader loads blocks one after the other at an even pace, and holds few blocks besides the open blocks. The first
segment takes several shares of some block groups, so that the block groups end one after the other. The last segment
takes all remaining rows.

In this module, a place is the index of a row before mixing: in its segment, in its block group, or in the list of all
shuffled blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.order.permutation import Permutation, Positions, cached_permutation, derive_key

__all__ = ["BlockLayout", "BlockShuffleEpoch", "cached_epoch"]

# With more block groups, segments are shorter. With fewer, a reader holds more rows besides those of the open blocks.
MAX_OPEN_GROUPS = 8
# Computing a segment takes about 50 us, so a segment has at least this many rows, unless the open blocks have fewer.
MIN_SEGMENT_ROWS = 1024
_BLOCKS, _GROUPS, _SEGMENTS = range(3)  # parts of derived keys, so that the three kinds of permutations differ


@dataclass(frozen=True)
class BlockLayout:
    """The division of rows into blocks and block groups, equal in every epoch."""

    length: int  # rows in an epoch
    block_rows: int
    max_open_blocks: int

    @property
    def blocks(self) -> int:
        """Number of blocks; the last block may be shorter than the others."""
        return -(-self.length // self.block_rows)

    @cached_property
    def open_groups(self) -> int:
        """Number of block groups that are open at a time.

        Each block group stays open for this number of segments, or for fewer if it opens in the first segment or closes
        with the last one. The number is at most `MAX_OPEN_GROUPS`. It is smaller if segments would otherwise have fewer
        than `MIN_SEGMENT_ROWS` rows, or if a smaller number of larger block groups uses more of `max_open_blocks`.
        """
        mixed_rows = self.max_open_blocks * self.block_rows
        max_groups = min(self.max_open_blocks, MAX_OPEN_GROUPS, max(1, mixed_rows // MIN_SEGMENT_ROWS))
        candidates = range(-(-max_groups // 2), max_groups + 1)
        # Choose the number that opens the most blocks, or the largest of several such numbers.
        return max(candidates, key=lambda groups: (self.max_open_blocks // groups * groups, groups))

    @property
    def group_blocks(self) -> int:
        """Number of blocks in a block group."""
        return self.max_open_blocks // self.open_groups

    @property
    def group_rows(self) -> int:
        """Number of rows in a full block group."""
        return self.group_blocks * self.block_rows

    @property
    def open_blocks(self) -> int:
        """Number of blocks whose rows are mixed, at most `max_open_blocks`.

        The number is smaller if `max_open_blocks` blocks cannot be divided into equal block groups.
        """
        return self.blocks if self.blocks <= self.max_open_blocks else self.open_groups * self.group_blocks

    @property
    def block_groups(self) -> int:
        """Number of block groups in an epoch."""
        return -(-self.blocks // self.group_blocks)

    @property
    def max_row_distance(self) -> int:
        """Exclusive upper bound of the distance between two rows of one block, in positions.

        A block group is open in at most `open_groups` segments. The bound is the length of these segments if one of
        them is the first or the last segment of the epoch, which can be longer than all other segments.
        """
        if self.block_groups < 2 * self.open_groups:
            return self.length
        rounding = self.open_groups  # rows; the share of each open block group may be rounded up
        return min(self.length, self.group_rows * (3 * self.open_groups - 1) // 2 + rounding)

    def blocks_within(self, rows: int, *, passes: int = 1) -> int:
        """Return an upper bound of the number of blocks that `rows` consecutive positions use.

        The positions may span `passes` passes.
        """
        if self.blocks <= self.max_open_blocks:
            return self.blocks
        missing_rows = self.block_groups * self.group_rows - self.length  # rows that the last block group lacks
        groups = passes * (self.open_groups + 1) + (rows + passes * missing_rows) // self.group_rows
        return min(self.blocks, groups * self.group_blocks)


class BlockShuffleEpoch:
    """The segments of one epoch, stored as tables of block groups."""

    def __init__(self, layout: BlockLayout, key: int) -> None:
        self._layout, self._key = layout, key
        blocks, opens_all_blocks = layout.blocks, layout.blocks <= layout.max_open_blocks
        self._open_groups, group_blocks = (1, blocks) if opens_all_blocks else (layout.open_groups, layout.group_blocks)
        shuffled_blocks = Permutation(blocks, derive_key(key, _BLOCKS))(np.arange(blocks))
        self._block_first_rows = shuffled_blocks * layout.block_rows
        block_lengths = np.minimum(layout.block_rows, layout.length - self._block_first_rows)
        short_block = int(np.argmin(block_lengths))  # at most one block is short
        # The place after the last row of the short block.
        self._short_block_end = short_block * layout.block_rows + int(block_lengths[short_block])
        self._missing_rows = layout.block_rows - block_lengths[short_block]  # rows that the short block lacks
        self._group_lengths: Positions = np.add.reduceat(block_lengths, np.arange(0, blocks, group_blocks))
        self._group_starts = np.concatenate([[0], np.cumsum(self._group_lengths)])
        self._segment_ends = self._compute_segment_ends()
        self._group_shifts = _draw_shifts(self._group_lengths, derive_key(key, _GROUPS))
        self._segment_shifts = _draw_shifts(np.diff(self._segment_ends, prepend=0), derive_key(key, _SEGMENTS))

    def rows(self, positions: Positions) -> Positions:
        """Return the row number at each position. The positions may be in any order."""
        rows = np.empty_like(positions)
        for segment, selection in self._split_by_segment(positions):
            rows[selection] = self._segment_rows(segment, positions[selection])
        return rows

    def _compute_segment_ends(self) -> Positions:
        """Return the position after the last row of each segment."""
        lengths, open_groups = self._group_lengths, self._open_groups
        count = len(lengths) - open_groups + 1  # segments, without the last one that takes all remaining rows
        ends = self._group_starts[1 : count + 1].copy()
        for later in range(1, open_groups):  # add the shares of block groups that stay open
            ends += lengths[later : later + count] * (open_groups - later) // open_groups
        return ends if ends[-1] == self._layout.length else np.append(ends, self._layout.length)

    def _split_by_segment(self, positions: Positions) -> Iterator[tuple[int, Any]]:
        """Yield each segment with an index that selects its positions in `positions`.

        The index is a slice if positions never decrease (the usual case), else a boolean mask.
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
        """Return the row numbers at positions of one segment."""
        groups, firsts, counts = self._compute_shares(segment)
        ends = np.cumsum(counts)
        length = int(ends[-1])
        start = self._segment_ends[segment] - length
        places = self._mix(positions - start, length, _SEGMENTS, self._segment_shifts[:, segment])
        shares = np.repeat(np.arange(len(groups)), counts)[places]  # index in `groups` of the block group of each row
        offsets = places - (ends - counts - firsts)[shares]
        return self._row_numbers(self._places_in_groups(groups, shares, offsets))

    def _compute_shares(self, segment: int) -> tuple[Positions, Positions, Positions]:
        """Return the open block groups, and the first place and row count of their shares.

        The first place is counted in the block group.
        """
        open_groups, last = self._open_groups, len(self._segment_ends) - 1
        groups = np.arange(segment, min(segment + open_groups, len(self._group_lengths)))
        due_shares = segment - groups + open_groups  # shares that each block group has contributed after this segment
        shares_before = 0 if segment == 0 else due_shares - 1
        shares_after = open_groups if segment == last else due_shares
        lengths = self._group_lengths[groups]
        firsts = lengths * shares_before // open_groups
        return groups, firsts, lengths * shares_after // open_groups - firsts

    def _places_in_groups(self, groups: Positions, shares: Positions, offsets: Positions) -> Positions:
        """Return the place of each row in the list of all shuffled blocks.

        `groups[shares[i]]` is the block group of row i, and `offsets[i]` is its place in this block group.
        """
        lengths, starts = self._group_lengths[groups], self._group_starts[groups]
        shifts = self._group_shifts[:, groups]
        if (lengths == lengths[0]).all():
            places = self._mix(offsets, int(lengths[0]), _GROUPS, shifts[:, shares])
            places += starts[shares]
            return places
        places = np.empty_like(offsets)
        for share in range(len(groups)):
            in_share = shares == share
            mixed = self._mix(offsets[in_share], int(lengths[share]), _GROUPS, shifts[:, share])
            places[in_share] = mixed + starts[share]
        return places

    def _mix(self, places: Positions, length: int, key_kind: int, shifts: Positions) -> Positions:
        """Return permuted places: shift, permute, shift and permute again.

        All block groups (or segments) of one length use the same two permutations, but different shifts. Separate
        permutations would take more time: each would compute its whole table, even for a shard with few of its rows.
        """
        for part in (0, 1):
            permutation = cached_permutation(length, derive_key(self._key, key_kind, part))
            places = permutation(_wrap(places + shifts[part], length))
        return places

    def _row_numbers(self, places: Positions) -> Positions:
        """Return the row numbers at places in the list of all shuffled blocks."""
        block_rows = self._layout.block_rows
        # Pretend that the short block has `block_rows` rows, so that a division gives the block of a place.
        places = places + self._missing_rows * (places >= self._short_block_end)
        blocks = places // block_rows
        return self._block_first_rows[blocks] + (places - blocks * block_rows)


def _draw_shifts(lengths: Positions, key: int) -> Positions:
    """Return two random numbers below each length, as an array of shape (2, lengths)."""
    raw = np.random.Philox(key=key).random_raw((2, len(lengths)))
    return (raw % lengths.astype(np.uint64)).astype(np.int64)


def _wrap(places: Positions, length: int) -> Positions:
    """Compute `places % length` in place, for places below 2 * length; return the array."""
    places -= length
    places += (places >> 63) & length  # `>> 63` gives -1 for a negative number, else 0
    return places


@lru_cache(maxsize=32)  # several pipelines may be combined, each with its own block shuffle
def cached_epoch(layout: BlockLayout, key: int) -> BlockShuffleEpoch:
    """Return the tables of an epoch, from a cache of recently used epochs."""
    return BlockShuffleEpoch(layout, key)
