"""Sources that consist of several sources, which are called their parts.

    JoinedSource   the rows of one part after the rows of another: `concat()` and `interleave()`
    ZippedSource   row `i` has the leaves of row `i` of every part: `zip_rows()`

A combined source stores no rows. It returns the memory extents and file extents of its parts. So a device pulls rows
directly from the user's arrays, and Forebay reads the files of each part as if this part were the only source.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import Any, TypeVar

import numpy as np

from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_array, row_count, row_numbers
from forebay.core.skipped_rows import SkippedRow, gather_readable, raise_unreadable
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion, sum_counters
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.sources.arrays import ArraySource, GatherFunction, make_gather, memory_extent
from forebay.sources.part_gather import PartGather, join_extents
from forebay.sources.row_gather import RowGather, load_library
from forebay.sources.shared_prefetch import SharedPrefetch

__all__ = ["JoinedSource", "ZippedSource"]

Extent = TypeVar("Extent", MemoryExtent, FileExtent)


class CombinedSource(AbstractSource):
    """Base class of sources with parts. It derives its attributes from those of the parts."""

    def __init__(self, parts: Sequence[AbstractSource]) -> None:
        self.parts = tuple(parts)
        self.immutable = all(part.immutable for part in parts)
        self.row_by_row = any(part.row_by_row for part in parts)
        self.decodes_rows = any(part.decodes_rows for part in parts)
        self.needs_cluster = any(part.needs_cluster for part in parts)
        self.class_names = next((part.class_names for part in parts if part.class_names), ())
        self.version = "+".join(part.version for part in parts) if any(part.version for part in parts) else ""
        self.chunk_policy = max((part.chunk_policy for part in parts), key=lambda policy: policy.rows)
        self.shuffle_blocks = _largest_blocks([part.shuffle_blocks for part in parts])
        self.decompressed_nbytes = sum(part.decompressed_nbytes for part in parts)
        self.scratch_row_nbytes = max(part.scratch_row_nbytes for part in parts)
        self.max_scratch_nbytes = max(part.max_scratch_nbytes for part in parts)
        limits = [part.error_limit for part in parts if part.error_limit is not None]
        self.error_limit = max(limits, key=lambda limit: limit.max_errors, default=None)
        identifiers = [part.identify for part in parts if part.identify is not None]
        self.identify = partial(_identify_parts, identifiers) if len(identifiers) == len(parts) else None

    def decompress(self) -> None:
        for part in self.parts:
            part.decompress()

    @property
    def infers_specs(self) -> bool:
        return any(part.infers_specs for part in self.parts)

    @property
    def held_nbytes(self) -> int:
        return sum(part.held_nbytes for part in self.parts)

    @property
    def plan_version(self) -> int:
        return sum(part.plan_version for part in self.parts)

    def memory(self) -> list[MemoryRegion]:
        regions = [part.memory() for part in self.parts]
        return list(chain.from_iterable(regions)) if all(regions) else []

    def counters(self) -> dict[str, int]:
        return sum_counters(part.counters() for part in self.parts)

    def decisions(self) -> list[Decision]:
        return list(dict.fromkeys(decision for part in self.parts for decision in part.decisions()))

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def _share_prefetch(
        self, upcoming: Iterator[Rows], split: Callable[[Rows], Iterator[tuple[int, Rows]]]
    ) -> SharedPrefetch | None:
        if not any(part.can_prefetch for part in self.parts):
            return None
        prefetch = SharedPrefetch(upcoming, self.parts, split)
        return prefetch if prefetch else None


class JoinedSource(CombinedSource):
    """The rows of several sources, one source after the other.

    All sources have the same specs and structure.
    """

    can_prefetch = True

    def __init__(self, parts: Sequence[AbstractSource]) -> None:
        # Replace a part that is itself a JoinedSource by its parts, so that one gather reads all of them.
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, JoinedSource) else (part,))]
        super().__init__(flat)
        self.specs, self.structure = tuple(flat[0].specs), flat[0].structure
        self._boundaries = [0, *accumulate(map(len, flat))]
        self._part_gather = PartGather(
            self._boundaries,
            sum(spec.nbytes for spec in self.specs),
            lambda part, rows, out: flat[part].gather(rows, out),
            gathers_one_by_one=not any(part.can_prefetch for part in flat),
        )
        if self.error_limit is not None:  # `_gather_readable` allocates temporary arrays for the rows
            self.scratch_row_nbytes += sum(spec.nbytes for spec in self.specs)
            self.max_scratch_nbytes = AbstractSource.max_scratch_nbytes
        self._leaf_gathers = _join_arrays(flat, self._boundaries)
        self.read_decision = _explain_parts(flat, "each row from its own source")

    def __len__(self) -> int:
        return self._boundaries[-1]

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if self.error_limit is not None:
            raise_unreadable(self._gather_readable(rows, out))
        elif not self._leaf_gathers:
            self._part_gather.gather(rows, out)
        else:
            for gather, leaf in zip(self._leaf_gathers, out, strict=True):
                gather(rows, leaf)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        out = [self.specs[leaf].empty(row_count(rows)) for leaf in leaves]
        for part, selection, part_rows in self._part_gather.select(row_array(rows)):
            for target, values in zip(out, self.parts[part].gather_leaves(leaves, part_rows), strict=True):
                target[selection] = values
        return out

    def _gather_readable(self, rows: Rows, out: Sequence[Array]) -> Iterator[SkippedRow]:
        """Gather rows, and yield the rows that a part could not read."""
        for part, selection, part_rows in self._part_gather.select(row_array(rows)):
            gathered = [spec.empty(len(selection)) for spec in self.specs]
            for row in gather_readable(self.parts[part], part_rows, gathered):
                yield replace(row, row=int(selection[row.row]))
            for target, values in zip(out, gathered, strict=True):
                target[selection] = values

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Return the part and the row numbers of each read that `gather(rows)` makes."""
        if self.error_limit is None:
            return self._part_gather.split(rows)
        return ((part, part_rows) for part, _, part_rows in self._part_gather.select(row_array(rows)))

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        numbers = np.asarray(row_numbers(rows), np.intp)
        found: list[list[Array]] = [[]] * len(numbers)
        for part, selection, part_rows in self._part_gather.select(numbers):
            for position, row in zip(selection.tolist(), self.parts[part].gather_rows(part_rows), strict=True):
                found[position] = row
        return found

    def row_lengths(self, leaf: int) -> Array | None:
        lengths = [part.row_lengths(leaf) for part in self.parts]
        known = [part_lengths for part_lengths in lengths if part_lengths is not None]
        return np.concatenate(known) if len(known) == len(lengths) else None

    def prefetch(self, upcoming: Iterator[Rows]) -> SharedPrefetch | None:
        return self._share_prefetch(upcoming, self._split)

    def memory_extents(self) -> list[list[MemoryExtent]]:
        parts = (part.memory_extents() for part in self.parts)
        return join_extents(self._boundaries, parts, len(self.specs))

    def file_extents(self) -> list[list[FileExtent]]:
        parts = (part.file_extents() for part in self.parts)
        return join_extents(self._boundaries, parts, len(self.specs))


class ZippedSource(CombinedSource):
    """Row `i` has the leaves of row `i` of every part.

    The source is as long as its shortest part.
    """

    can_prefetch = True

    def __init__(self, parts: Sequence[AbstractSource], structure: Structure) -> None:
        super().__init__(parts)
        self.specs = tuple(chain.from_iterable(part.specs for part in parts))
        self.structure = structure
        self._length = min(map(len, parts))
        self._leaf_ends = list(accumulate((len(part.specs) for part in parts), initial=0))
        self.read_decision = _explain_parts(parts, "together, row by row")

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        failed = list[SkippedRow]()
        for part, first, stop in zip(self.parts, self._leaf_ends[:-1], self._leaf_ends[1:], strict=True):
            failed += gather_readable(part, rows, out[first:stop])
        raise_unreadable(failed)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        found: dict[int, Array] = {}
        for part, first, stop in zip(self.parts, self._leaf_ends[:-1], self._leaf_ends[1:], strict=True):
            wanted = [leaf for leaf in leaves if first <= leaf < stop]
            if wanted:
                values = part.gather_leaves([leaf - first for leaf in wanted], rows)
                found.update(zip(wanted, values, strict=True))
        return [found[leaf] for leaf in leaves]

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        rows_by_part = [part.gather_rows(rows) for part in self.parts]
        return [list(chain.from_iterable(leaves)) for leaves in zip(*rows_by_part, strict=True)]

    def row_lengths(self, leaf: int) -> Array | None:
        part = bisect_right(self._leaf_ends, leaf) - 1
        lengths = self.parts[part].row_lengths(leaf - self._leaf_ends[part])
        return None if lengths is None else lengths[: self._length]

    def prefetch(self, upcoming: Iterator[Rows]) -> SharedPrefetch | None:
        def split(rows: Rows) -> Iterator[tuple[int, Rows]]:
            return ((part, rows) for part in range(len(self.parts)) if row_count(rows))

        return self._share_prefetch(upcoming, split)

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return self._zip_extents([part.memory_extents() for part in self.parts])

    def file_extents(self) -> list[list[FileExtent]]:
        return self._zip_extents([part.file_extents() for part in self.parts])

    def _zip_extents(self, parts: Sequence[Sequence[Sequence[Extent]]]) -> list[list[Extent]]:
        """Return the extents of all leaves, without rows that the shortest part does not have."""
        if not all(parts):
            return []
        return [
            [
                replace(extent, rows=min(extent.rows, self._length - extent.first))
                for extent in extents
                if extent.first < self._length
            ]
            for leaves in parts
            for extents in leaves
        ]


def _identify_parts(identifiers: Sequence[Callable[[], Any]]) -> list[Any]:
    return [identify() for identify in identifiers]


def _largest_blocks(proposals: Sequence[ShuffleBlocks | None]) -> ShuffleBlocks | None:
    """Return shuffle blocks that suit all parts, or None if no part proposes blocks.

    The block length is the largest that a part proposes. `held` is the smallest that a part proposes.
    """
    blocks = [proposal for proposal in proposals if proposal is not None]
    if not blocks:
        return None
    return ShuffleBlocks(max(block.rows for block in blocks), min(block.held for block in blocks))


def _explain_parts(parts: Sequence[AbstractSource], arrangement: str) -> Decision:
    reads = [part.read_decision for part in parts]
    listed = dict.fromkeys("from memory" if read is None else f"{read.choice} ({read.why})" for read in reads)
    return Decision("reads", f"{len(parts)} sources", f"{arrangement}; {'; '.join(listed)}")


def _join_arrays(parts: Sequence[AbstractSource], boundaries: Sequence[int]) -> list[GatherFunction]:
    """Return one gather function per leaf, or an empty list.

    The list is empty unless all parts are arrays in memory.
    """
    arrays = [part.arrays for part in parts if isinstance(part, ArraySource)]
    return [_join_leaf(leaf, boundaries) for leaf in zip(*arrays, strict=True)] if len(arrays) == len(parts) else []


def _join_leaf(arrays: Sequence[Array], boundaries: Sequence[int]) -> GatherFunction:
    """Return a function that gathers rows of several arrays.

    If the arrays follow each other in memory, such as slices of one array, the function treats them as one array.
    Otherwise, a C function gathers rows of all arrays in one call (`row_gather.py`). If it is not compiled, or if rows
    of an array are not contiguous, `PartGather` gathers the rows of each array separately. This is the slowest way,
    because it copies short shuffled rows twice.
    """
    if _follow_each_other(arrays):
        gather = make_gather(np.lib.stride_tricks.as_strided(arrays[0], (boundaries[-1], *arrays[0].shape[1:])))
        return partial(_gather_joined, gather, arrays)
    gathers, row_nbytes = list(map(make_gather, arrays)), ArraySpec(arrays[0].shape[1:], arrays[0].dtype).nbytes
    joined = PartGather(boundaries, row_nbytes, lambda part, rows, out: gathers[part](rows, out[0]))
    if load_library() is None or not row_nbytes or not all(map(_has_contiguous_rows, arrays)):
        return lambda rows, out: joined.gather(rows, [out])
    extents = [memory_extent(array, first=first) for array, first in zip(arrays, boundaries[:-1], strict=True)]
    gather_listed = RowGather(extents, row_nbytes, arrays)
    return lambda rows, out: joined.gather(rows, [out]) if isinstance(rows, slice) else gather_listed(rows, out)


def _follow_each_other(arrays: Sequence[Array]) -> bool:
    """Return whether each C-ordered array begins where the array before it ends."""
    if not all(array.flags.c_contiguous and array.size for array in arrays):
        return False
    extents = [memory_extent(array) for array in arrays]
    ends = [extent.address + array.nbytes for extent, array in zip(extents, arrays, strict=True)]
    return ends[:-1] == [extent.address for extent in extents[1:]]


def _gather_joined(gather: GatherFunction, arrays: Sequence[Array], rows: Rows, out: Array) -> None:
    """Gather rows of arrays that follow each other in memory.

    `gather` refers only to the first of them. The argument `arrays` keeps all of them alive.
    """
    gather(rows, out)


def _has_contiguous_rows(array: Array) -> bool:
    return array[:1].flags.c_contiguous and array.dtype.isnative
