"""Where rows lie and where they go, as addresses; copies between both, as few as can be, none across a seam. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Extents", "Place", "joined", "runs_of", "split_at"]


@dataclass(frozen=True, slots=True)
class Extents:
    """Where the rows of one leaf lie: from `first[i]` on at `base[i] + row * stride[i]`."""

    table: Any  # int64, one line an extent: first, base, stride
    row_nbytes: int
    rows: int
    wide: bool  # whether all of it can be read sixteen bytes at a time
    near: bool = False  # all of it in device memory

    def addresses(self, rows: Any) -> Any:
        """Where each row begins."""
        table = self.table
        if len(table) == 1:
            return (rows * table[0, 2] + table[0, 1]).view(np.uint64)
        which = np.searchsorted(table[:, 0], rows, side="right") - 1
        return (table[which, 1] + rows * table[which, 2]).view(np.uint64)

    @classmethod
    def of(cls, table: Any, *, row_nbytes: int, rows: int, near: bool = False) -> "Extents":
        wide = row_nbytes % 16 == 0 and not (table[:, 1:] % 16).any()
        return cls(table, row_nbytes, rows, bool(wide), near)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one leaf of a group goes: row i to pointer + (i // batch_rows) * batch_stride + (i % batch_rows) * row."""

    pointer: int
    batch_rows: int
    batch_stride: int
    row_nbytes: int

    @property
    def packed(self) -> bool:
        return self.batch_stride == self.batch_rows * self.row_nbytes

    def addresses(self, numbers: Any) -> Any:
        if self.packed:
            return (numbers * self.row_nbytes + self.pointer).astype(np.uint64)
        batch, row = np.divmod(numbers, self.batch_rows)
        return (batch * self.batch_stride + row * self.row_nbytes + self.pointer).astype(np.uint64)


def runs_of(extents: Extents, rows: slice, place: Place) -> tuple[Any, Any, Any]:
    """Rows without gaps on either side: a copy for each extent they lie in."""
    firsts = extents.table[:, 0]
    inner = firsts[(firsts > rows.start) & (firsts < rows.stop)]
    starts = np.concatenate(([rows.start], inner)).astype(np.int64)
    counts = np.diff(np.concatenate((starts, [rows.stop])))
    sources, targets = extents.addresses(starts), place.addresses(starts - rows.start)
    return sources, targets, (counts * extents.row_nbytes).astype(np.uint64)


def joined(sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Neighbours on both sides become one copy."""
    if len(sources) < 2:
        return sources, targets, lengths
    apart = (sources[1:] != sources[:-1] + lengths[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    if apart.all():
        return sources, targets, lengths
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    return sources[starts], targets[starts], np.add.reduceat(lengths, starts)


def split_at(seams: Any, sources: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """No copy may cross from one page-locked piece into the next."""
    if not len(seams):
        return sources, targets, lengths
    ends = sources + lengths
    following = np.searchsorted(seams, sources, side="right")
    crossing = np.flatnonzero((following < len(seams)) & (seams[np.minimum(following, len(seams) - 1)] < ends))
    if not len(crossing):
        return sources, targets, lengths
    more: list[tuple[int, int, int]] = []
    for copy in crossing.tolist():
        edges = seams[following[copy] : np.searchsorted(seams, ends[copy], side="left")]
        more += _pieces(int(sources[copy]), int(targets[copy]), [*edges.tolist(), int(ends[copy])])
    kept = np.ones(len(sources), bool)
    kept[crossing] = False
    extra = np.array(more, np.uint64).T
    return (
        np.concatenate((sources[kept], extra[0])),
        np.concatenate((targets[kept], extra[1])),
        np.concatenate((lengths[kept], extra[2])),
    )


def _pieces(source: int, target: int, edges: list[int]) -> list[tuple[int, int, int]]:
    found = []
    for edge in edges:
        found.append((source, target, edge - source))
        source, target = edge, target + edge - source
    return found
