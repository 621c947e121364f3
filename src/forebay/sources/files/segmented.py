"""`SegmentedColumn`: a leaf that a mapped file stores uncompressed in several segments.

For example, the record batches of an Arrow file are segments.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows, split_slice
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.errors import SourceError
from forebay.sources.arrays import make_gather, memory_region
from forebay.sources.part_gather import PartGather
from forebay.sources.row_gather import RowGather, load_library

__all__ = ["SegmentedColumn"]

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class SegmentedColumn:
    """One leaf in segments of a mapped file.

    Segment `i` has rows `boundaries[i]` to `boundaries[i + 1] - 1`. Row `boundaries[i] + k` begins at byte
    `offsets[i] + k * row_nbytes` of `memory`. `is_swapped` is True if the values are not in native byte order.
    """

    held_nbytes = 0  # the rows are not compressed

    def __init__(
        self, spec: ArraySpec, boundaries: Integers, memory: Array, offsets: Integers, *, is_swapped: bool = False
    ) -> None:
        _validate_segments(np.diff(boundaries), offsets, spec.nbytes, memory.nbytes)
        self.spec, self.length = spec, int(boundaries[-1])
        self._memory, self._row_nbytes, self._is_swapped = memory, spec.nbytes, is_swapped
        self._boundaries, self._offsets = boundaries.tolist(), offsets.tolist()
        self._by_segment = PartGather(self._boundaries, self._row_nbytes, self._gather_segment)
        self._gather_listed: Callable[[Array, Array], None] = self._gather_by_segment
        if load_library() is not None and self._row_nbytes:
            self._gather_listed = RowGather(self._extents(), self._row_nbytes, [memory])

    @property
    def nbytes(self) -> int:
        return self.length * self._row_nbytes

    def gather(self, rows: Rows, out: Array) -> None:
        if len(out) == 0 or not self._row_nbytes:
            return
        if isinstance(rows, slice):
            self._copy_slice(rows, out)
        else:
            self._gather_listed(rows, out)
        if self._is_swapped:
            out.byteswap(inplace=True)

    def memory(self) -> list[MemoryRegion]:
        """Return the region of the mapped file.

        Return an empty list if there are no rows, or if they are not in native byte order.
        """
        return [memory_region(self._memory)] if self._has_native_rows else []

    def memory_extents(self) -> list[MemoryExtent]:
        """Return one extent per segment, or an empty list in the same cases as `memory`."""
        return self._extents() if self._has_native_rows else []

    @property
    def _has_native_rows(self) -> bool:
        return not self._is_swapped and self.nbytes > 0

    def _extents(self) -> list[MemoryExtent]:
        address, first_rows = self._memory.__array_interface__["data"][0], self._boundaries
        return [
            MemoryExtent(first, stop - first, address + offset, self._row_nbytes, writable=False, own_pages=True)
            for first, stop, offset in zip(first_rows[:-1], first_rows[1:], self._offsets, strict=True)
            if stop > first
        ]

    def _copy_slice(self, rows: slice, out: Array) -> None:
        target, nbytes = out.reshape(-1).view(np.uint8), self._row_nbytes
        for segment, part in split_slice(rows, self._boundaries):
            start = self._offsets[segment] + (part.start - self._boundaries[segment]) * nbytes
            target_bytes = slice((part.start - rows.start) * nbytes, (part.stop - rows.start) * nbytes)
            target[target_bytes] = self._memory[start : start + (part.stop - part.start) * nbytes]

    def _gather_by_segment(self, rows: Rows, out: Array) -> None:
        self._by_segment.gather(rows, [out.reshape(-1).view(f"V{self._row_nbytes}")])

    def _gather_segment(self, segment: int, rows: Rows, out: Sequence[Array]) -> None:
        start, length = self._offsets[segment], self._boundaries[segment + 1] - self._boundaries[segment]
        segment_bytes = self._memory[start : start + length * self._row_nbytes]
        make_gather(segment_bytes.view(f"V{self._row_nbytes}"))(rows, out[0])


def _validate_segments(lengths: Integers, offsets: Integers, row_nbytes: int, memory_nbytes: int) -> None:
    """Raise SourceError unless all segments with rows are inside of the memory.

    This function divides instead of multiplying, because a product of numbers from a damaged file could overflow.
    """
    begins, lengths = offsets[lengths != 0], lengths[lengths != 0]
    room = memory_nbytes - begins  # bytes from the start of each segment to the end of the memory
    fits = (begins >= 0) & (room >= 0) & (lengths > 0) & (lengths <= room // max(1, min(row_nbytes, memory_nbytes + 1)))
    if not fits.all():
        raise SourceError("the file claims rows beyond its end. It is damaged or truncated: write it again.")
