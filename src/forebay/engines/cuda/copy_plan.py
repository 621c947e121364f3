"""Plans of host-to-device copies: row addresses, and the fewest copies of these rows.

This module makes no driver calls.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Destination", "RowExtents", "join_adjacent", "plan_run_copies", "split_at_boundaries"]


@dataclass(frozen=True, slots=True)
class RowExtents:
    """The addresses of all rows of one leaf.

    Each line of `table` is an extent: `first`, `base` and `stride`. From row `first` up to the `first` of the next
    extent, row number `row` begins at address `base + row * stride`.
    """

    table: Any  # int64 array, one line per extent: first, base, stride
    row_nbytes: int
    rows: int  # number of rows of all extents
    is_16_byte_aligned: bool  # whether a kernel can read every row 16 bytes at a time
    copied_row_nbytes: int  # bytes from row to row in a copy of all rows; below `row_nbytes` if rows overlap (windows)
    on_device: bool = False  # whether every row is in device memory
    owner: Any = None  # the object that owns the device memory of the rows; None if no row is there

    def addresses(self, rows: Any) -> Any:
        """Return the address of the first byte of each row."""
        table = self.table
        if len(table) == 1:
            return (rows * table[0, 2] + table[0, 1]).view(np.uint64)
        extents = np.searchsorted(table[:, 0], rows, side="right") - 1
        return (table[extents, 1] + rows * table[extents, 2]).view(np.uint64)

    @property
    def has_adjacent_rows(self) -> bool:
        """Whether the rows of each extent follow each other without gaps, or overlap."""
        return bool((self.table[:, 2] == self.copied_row_nbytes).all())

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        row_nbytes: int,
        rows: int,
        copied_row_nbytes: int | None = None,
        on_device: bool = False,
        owner: Any = None,
    ) -> "RowExtents":
        aligned = row_nbytes % 16 == 0 and not (table[:, 1:] % 16).any()
        return cls(table, row_nbytes, rows, bool(aligned), copied_row_nbytes or row_nbytes, on_device, owner)


@dataclass(frozen=True, slots=True)
class Destination:
    """The device memory that receives one leaf of a group.

    Row `i` of the group is copied to `pointer + (i // batch_rows) * batch_stride + (i % batch_rows) * row_nbytes`.
    """

    pointer: int
    batch_rows: int
    batch_stride: int  # bytes from one batch to the next
    row_nbytes: int

    @property
    def is_contiguous(self) -> bool:
        """Whether batches follow each other without gaps."""
        return self.batch_stride == self.batch_rows * self.row_nbytes

    def addresses(self, positions: Any) -> Any:
        """Return the target addresses of the rows at these positions of the group."""
        if self.is_contiguous:
            return (positions * self.row_nbytes + self.pointer).astype(np.uint64)
        batch, row = np.divmod(positions, self.batch_rows)
        return (batch * self.batch_stride + row * self.row_nbytes + self.pointer).astype(np.uint64)


def plan_run_copies(extents: RowExtents, rows: slice, destination: Destination) -> tuple[Any, Any, Any]:
    """Return sources, targets and lengths of the copies for consecutive rows, one copy per extent.

    Inside an extent and inside the destination, rows must be adjacent, or overlap in the same way.
    """
    first_rows = extents.table[:, 0]
    inner_starts = first_rows[(first_rows > rows.start) & (first_rows < rows.stop)]
    starts = np.concatenate(([rows.start], inner_starts)).astype(np.int64)
    counts = np.diff(np.concatenate((starts, [rows.stop])))
    sources, targets = extents.addresses(starts), destination.addresses(starts - rows.start)
    lengths = (counts - 1) * extents.copied_row_nbytes + extents.row_nbytes
    return sources, targets, lengths.astype(np.uint64)


def join_adjacent(sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Join copies that are adjacent in the source and in the target."""
    if len(sources) < 2:
        return sources, targets, lengths
    has_gap = (sources[1:] != sources[:-1] + lengths[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    if has_gap.all():
        return sources, targets, lengths
    starts = np.concatenate(([0], np.flatnonzero(has_gap) + 1))
    return sources[starts], targets[starts], np.add.reduceat(lengths, starts)


def split_at_boundaries(boundaries: Any, sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Split copies at `boundaries`, where one page-locked range ends and the next begins.

    The driver refuses a copy that reads both ranges.
    """
    if not len(boundaries):
        return sources, targets, lengths
    ends = sources + lengths
    next_index = np.searchsorted(boundaries, sources, side="right")
    next_boundaries = boundaries[np.minimum(next_index, len(boundaries) - 1)]
    crossing = np.flatnonzero((next_index < len(boundaries)) & (next_boundaries < ends))
    if not len(crossing):
        return sources, targets, lengths
    parts: list[tuple[int, int, int]] = []
    for copy in crossing.tolist():
        crossed = boundaries[next_index[copy] : np.searchsorted(boundaries, ends[copy], side="left")]
        parts += _split_copy(int(sources[copy]), int(targets[copy]), [*crossed.tolist(), int(ends[copy])])
    is_whole = np.ones(len(sources), bool)
    is_whole[crossing] = False
    part_sources, part_targets, part_lengths = np.array(parts, np.uint64).T
    return (
        np.concatenate((sources[is_whole], part_sources)),
        np.concatenate((targets[is_whole], part_targets)),
        np.concatenate((lengths[is_whole], part_lengths)),
    )


def _split_copy(source: int, target: int, ends: list[int]) -> list[tuple[int, int, int]]:
    """Return (source, target, length) of each part of a copy.

    `ends` are the source addresses where the parts end.
    """
    parts = []
    for end in ends:
        parts.append((source, target, end - source))
        source, target = end, target + end - source
    return parts
