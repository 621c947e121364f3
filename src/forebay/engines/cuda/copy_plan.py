"""Pure functions that plan copies: addresses of rows, and the fewest copies between them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Destination", "RowExtents", "join_adjacent", "plan_run_copies", "split_at_boundaries"]


@dataclass(frozen=True, slots=True)
class RowExtents:
    """The addresses of all rows of one leaf.

    From row `first[i]` up to the next extent, row number `row` begins at `base[i] + row * stride[i]`.
    """

    table: Any  # int64, one line per extent: first, base, stride
    row_nbytes: int
    rows: int
    is_16_byte_aligned: bool  # whether a kernel can read every row 16 bytes at a time
    on_device: bool = False  # whether every row is in device memory

    def addresses(self, rows: Any) -> Any:
        """Return the address of the first byte of each row."""
        table = self.table
        if len(table) == 1:
            return (rows * table[0, 2] + table[0, 1]).view(np.uint64)
        which = np.searchsorted(table[:, 0], rows, side="right") - 1
        return (table[which, 1] + rows * table[which, 2]).view(np.uint64)

    @classmethod
    def from_table(cls, table: Any, *, row_nbytes: int, rows: int, on_device: bool = False) -> "RowExtents":
        aligned = row_nbytes % 16 == 0 and not (table[:, 1:] % 16).any()
        return cls(table, row_nbytes, rows, bool(aligned), on_device)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one leaf of a group goes.

    Row i goes to `pointer + (i // batch_rows) * batch_stride + (i % batch_rows) * row_nbytes`.
    """

    pointer: int
    batch_rows: int
    batch_stride: int
    row_nbytes: int

    @property
    def is_contiguous(self) -> bool:
        """Whether no gap lies between batches."""
        return self.batch_stride == self.batch_rows * self.row_nbytes

    def addresses(self, numbers: Any) -> Any:
        """Return the address to which each row of the group goes."""
        if self.is_contiguous:
            return (numbers * self.row_nbytes + self.pointer).astype(np.uint64)
        batch, row = np.divmod(numbers, self.batch_rows)
        return (batch * self.batch_stride + row * self.row_nbytes + self.pointer).astype(np.uint64)


def plan_run_copies(extents: RowExtents, rows: slice, destination: Destination) -> tuple[Any, Any, Any]:
    """Plan one copy for each extent of a run of rows. Source and destination have no gaps."""
    firsts = extents.table[:, 0]
    inner = firsts[(firsts > rows.start) & (firsts < rows.stop)]
    starts = np.concatenate(([rows.start], inner)).astype(np.int64)
    counts = np.diff(np.concatenate((starts, [rows.stop])))
    sources, targets = extents.addresses(starts), destination.addresses(starts - rows.start)
    return sources, targets, (counts * extents.row_nbytes).astype(np.uint64)


def join_adjacent(sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Join copies that are adjacent in the source and in the target."""
    if len(sources) < 2:
        return sources, targets, lengths
    apart = (sources[1:] != sources[:-1] + lengths[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    if apart.all():
        return sources, targets, lengths
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    return sources[starts], targets[starts], np.add.reduceat(lengths, starts)


def split_at_boundaries(boundaries: Any, sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Split copies at the boundaries of page-locks. The driver refuses a copy across a boundary."""
    if not len(boundaries):
        return sources, targets, lengths
    ends = sources + lengths
    following = np.searchsorted(boundaries, sources, side="right")
    next_boundaries = boundaries[np.minimum(following, len(boundaries) - 1)]
    crossing = np.flatnonzero((following < len(boundaries)) & (next_boundaries < ends))
    if not len(crossing):
        return sources, targets, lengths
    parts: list[tuple[int, int, int]] = []
    for copy in crossing.tolist():
        edges = boundaries[following[copy] : np.searchsorted(boundaries, ends[copy], side="left")]
        parts += _split_copy(int(sources[copy]), int(targets[copy]), [*edges.tolist(), int(ends[copy])])
    whole = np.ones(len(sources), bool)
    whole[crossing] = False
    extra = np.array(parts, np.uint64).T
    return (
        np.concatenate((sources[whole], extra[0])),
        np.concatenate((targets[whole], extra[1])),
        np.concatenate((lengths[whole], extra[2])),
    )


def _split_copy(source: int, target: int, edges: list[int]) -> list[tuple[int, int, int]]:
    parts = []
    for edge in edges:
        parts.append((source, target, edge - source))
        source, target = edge, target + edge - source
    return parts
