"""`PartGather`: gathers rows of a sequence of parts, such as files or sources.

The rows of all parts are numbered together. To gather means to copy the rows with given numbers to output arrays.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from forebay.core.rows import Rows, find_parts, split_by_part, split_runs, split_slice
from forebay.core.source import FileExtent, MemoryExtent
from forebay.core.spec import Array
from forebay.sources.arrays import make_gather

__all__ = ["PartGather", "join_extents"]

GatherPart: TypeAlias = Callable[[int, Rows, Sequence[Array]], None]  # index of a part, rows of the part, output arrays
Extent = TypeVar("Extent", MemoryExtent, FileExtent)

# Bytes per thread of a temporary buffer, into which shuffled rows are gathered part by part.
_SCRATCH_NBYTES = 4 * 2**20
_SAMPLE_ROWS = 64  # rows; if the first rows of a group are sorted by part, probably all of its rows are sorted
_SMALL_SAMPLE_ROWS = 8  # rows; examined first, because they suffice for most groups and need no NumPy
_LARGE_ROW_NBYTES = 32 * 1024  # bytes; rows of this size or more are gathered one by one, without the scratch buffer


@dataclass(frozen=True, slots=True)
class _Step:
    """Rows of a group that are gathered together."""

    positions: slice  # of these rows in the group
    rows: Array  # their row numbers, sorted by part
    runs: Sequence[tuple[int, slice]]  # each part, and which of `rows` belong to it
    # `rows[i]` is row `positions.start + order[i]` of the group. None if the group was already sorted by part.
    order: Array | None = None


class PartGather:
    """Gathers rows of a sequence of parts. Several threads may use it."""

    def __init__(
        self,
        boundaries: Sequence[int],
        row_nbytes: int,
        gather_part: GatherPart,
        *,
        gather_mixed: Callable[[Rows, Sequence[Array]], None] | None = None,
        gathers_one_by_one: bool = True,
    ) -> None:
        """Store the boundaries and the functions that read the parts.

        Args:
            boundaries: The first row of each part, then the number of all rows.
            row_nbytes: Bytes of a row.
            gather_part: Gathers rows of one part.
            gather_mixed: Gathers rows of several parts in any order. If it is None, `gather_part` gathers all rows.
            gathers_one_by_one: Whether `gather_part` may be called for each large row. False if the parts prefetch: a
                prefetcher plans the rows of one call together, so single rows would need more and shorter reads.
        """
        self._boundaries, self._first_rows = list(boundaries), np.asarray(boundaries[:-1])
        self._row_nbytes = row_nbytes
        self._gathers_one_by_one = gathers_one_by_one and row_nbytes >= _LARGE_ROW_NBYTES
        self._gather_part, self._gather_mixed = gather_part, gather_mixed

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        """Write row `rows[i]` of each leaf to `out[leaf][i]`."""
        if isinstance(rows, slice):
            for part, part_rows in split_slice(rows, self._boundaries):
                first, target = self._boundaries[part], slice(part_rows.start - rows.start, part_rows.stop - rows.start)
                shifted = slice(part_rows.start - first, part_rows.stop - first)
                self._gather_part(part, shifted, [leaf[target] for leaf in out])
            return
        if self._gather_mixed is not None and self._is_mixed(rows):
            self._gather_mixed(rows, out)
            return
        parts = find_parts(rows, self._first_rows)
        for step in self._steps(rows, parts):
            targets = [leaf[step.positions] for leaf in out]
            if step.order is None:
                self._gather_sorted(step, targets)
            else:
                self._gather_through_scratch(step, step.order, targets)

    def split(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Yield the part and its row numbers for each `gather_part` call of `gather(rows)`."""
        if isinstance(rows, slice):
            for part, part_rows in split_slice(rows, self._boundaries):
                first = self._boundaries[part]
                yield part, slice(part_rows.start - first, part_rows.stop - first)
            return
        for step in self._steps(rows, find_parts(rows, self._first_rows)):
            for part, run in step.runs:
                yield part, step.rows[run] - self._boundaries[part]

    def count_rows(self, rows: Rows) -> dict[int, int]:
        """Return a dict: index of a part -> how many of these rows it has."""
        if isinstance(rows, slice):
            return {part: part_rows.stop - part_rows.start for part, part_rows in split_slice(rows, self._boundaries)}
        parts, counts = np.unique(find_parts(rows, self._first_rows), return_counts=True)
        return dict(zip(parts.tolist(), counts.tolist(), strict=True))

    def select(self, rows: Array) -> Iterator[tuple[int, Array, Array]]:
        """Yield for each part its index, the positions in `rows`, and its row numbers."""
        parts = find_parts(rows, self._first_rows)
        for part, selection in split_by_part(parts, len(self._first_rows)):
            yield part, selection, rows[selection] - self._boundaries[part]

    def _is_mixed(self, rows: Array) -> bool:
        """Return whether some of the first rows are not sorted by part."""
        parts = [bisect_right(self._boundaries, row) for row in rows[:_SMALL_SAMPLE_ROWS].tolist()]
        return parts != sorted(parts) or not _is_sorted(find_parts(rows[:_SAMPLE_ROWS], self._first_rows))

    def _steps(self, rows: Array, parts: Array) -> Iterator[_Step]:
        if _is_sorted(parts):
            yield _Step(slice(0, len(rows)), rows, list(split_runs(parts)))
        elif self._gathers_one_by_one:
            for position in np.argsort(parts, kind="stable").tolist():
                single_row = slice(position, position + 1)
                yield _Step(single_row, rows[single_row], [(int(parts[position]), slice(0, 1))])
        else:
            length = max(1, _SCRATCH_NBYTES // max(1, self._row_nbytes))
            for start in range(0, len(rows), length):
                yield self._sort_step(slice(start, start + length), rows, parts)

    def _sort_step(self, positions: slice, rows: Array, parts: Array) -> _Step:
        selections = dict(split_by_part(parts[positions], len(self._first_rows)))
        order = np.concatenate(list(selections.values()))
        ends = list(accumulate(map(len, selections.values()), initial=0))
        runs = list(zip(selections, map(slice, ends[:-1], ends[1:]), strict=True))
        return _Step(positions, rows[positions][order], runs, order)

    def _gather_sorted(self, step: _Step, out: Sequence[Array]) -> None:
        for part, run in step.runs:
            self._gather_part(part, step.rows[run] - self._boundaries[part], [leaf[run] for leaf in out])

    def _gather_through_scratch(self, step: _Step, order: Array, out: Sequence[Array]) -> None:
        """Gather rows part by part into a scratch buffer, then reorder them."""
        scratch = [np.empty_like(leaf) for leaf in out]
        self._gather_sorted(step, scratch)
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        for leaf, gathered in zip(out, scratch, strict=True):
            make_gather(gathered)(positions, leaf)


def _is_sorted(parts: Array) -> bool:
    return bool((parts[1:] >= parts[:-1]).all())


def join_extents(
    boundaries: Sequence[int], parts: Iterable[Sequence[Sequence[Extent]]], leaves: int
) -> list[list[Extent]]:
    """Return the extents of each leaf with row numbers of the whole sequence.

    `boundaries` has the first row of each part, then the number of all rows. Return an empty list if a part with rows
    has no extents, or if no part has rows.
    """
    joined: list[list[Extent]] = [[] for _ in range(leaves)]
    for (first, stop), extents_by_leaf in zip(pairwise(boundaries), parts, strict=True):
        if first == stop:
            continue
        if len(extents_by_leaf) != leaves:
            return []
        for leaf, extents in zip(joined, extents_by_leaf, strict=True):
            leaf += [replace(extent, first=extent.first + first) for extent in extents]
    return joined if boundaries[-1] else []
