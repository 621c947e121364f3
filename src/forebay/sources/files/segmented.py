"""One leaf that a mapped file stores uncompressed in several segments, such as record batches.

`SegmentedColumn` views the file as one array of units. The unit size is the greatest common divisor of the row size and
of the distances between segments. So every row of every segment begins at a unit, and one gather reads rows of any
number of segments:

    rows of one unit            `take` of units
    short rows                  fancy indexing of overlapping rows: a row of the view begins at every unit
    longer rows of few units    `take` of all units of each row
    long rows of many units     a copy of each row, one by one
"""

import math
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows, find_parts, split_slice
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.sources.arrays import GatherFunction, make_gather, memory_region

__all__ = ["SegmentedColumn"]

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_MAX_ROW_UNITS = 16  # units of one row; with more, `take` of units is slower than the other gathers
# Fancy indexing of overlapping rows copies each row twice. On two cores (2.5 GHz), it was as fast as `take` of 2 to 16
# units for rows of 400 bytes, and faster for shorter rows. For rows of 12 KiB, it was as fast as copying them one by
# one.
_SHORT_ROW_NBYTES = 512
_OVERLAP_NBYTES = 8 * 1024


class SegmentedColumn:
    """One leaf in segments of a mapped file.

    Row `boundaries[i] + k` begins at byte `offsets[i] + k * row_nbytes` of `memory`.

    `boundaries` ends with the number of rows. `is_swapped` is True if the values are not in native byte order.
    """

    held_nbytes = 0  # the rows are not compressed

    def __init__(
        self, spec: ArraySpec, boundaries: Integers, memory: Array, offsets: Integers, *, is_swapped: bool = False
    ) -> None:
        self.spec, self.length = spec, int(boundaries[-1])
        self._boundaries, self._offsets, self._memory = boundaries, offsets, memory
        self._row_nbytes, self._is_swapped = spec.nbytes, is_swapped
        unit_nbytes = math.gcd(self._row_nbytes, *(offsets - offsets[:1]).tolist())
        first_unit_offset = int(offsets[0]) % unit_nbytes if unit_nbytes and len(offsets) else 0
        self._unit_nbytes = unit_nbytes
        # Row r of segment i begins with unit `r * units per row + unit_shifts[i]`.
        self._unit_shifts = (offsets - first_unit_offset - boundaries[:-1] * self._row_nbytes) // max(1, unit_nbytes)
        self._gather_rows_at = _make_unit_gather(memory[first_unit_offset:], unit_nbytes, self._row_nbytes)

    @property
    def uses_units(self) -> bool:
        """Whether one gather reads rows of all segments; otherwise they are copied one by one."""
        return self._gather_rows_at is not None

    @property
    def nbytes(self) -> int:
        return self.length * self._row_nbytes

    def gather(self, rows: Rows, out: Array) -> None:
        if len(out) == 0 or not self._row_nbytes:
            return
        if isinstance(rows, slice):
            self._copy_slice(rows, out)
        elif self._gather_rows_at is None:
            self._copy_one_by_one(self._byte_offsets(rows), out)
        else:
            self._gather_rows_at(self._first_units(rows), out)
        if self._is_swapped:
            out.byteswap(inplace=True)

    def memory(self) -> list[MemoryRegion]:
        """Return the region of the mapped file; empty without rows or without native byte order."""
        return [memory_region(self._memory)] if self._has_native_rows else []

    def memory_extents(self) -> list[MemoryExtent]:
        """Return one extent for each segment; empty without rows or without native byte order."""
        if not self._has_native_rows:
            return []
        address, lengths = self._memory.__array_interface__["data"][0], np.diff(self._boundaries).tolist()
        segments = zip(self._boundaries[:-1].tolist(), lengths, self._offsets.tolist(), strict=True)
        return [
            MemoryExtent(first, rows, address + offset, self._row_nbytes, writable=False, own_pages=True)
            for first, rows, offset in segments
            if rows
        ]

    @property
    def _has_native_rows(self) -> bool:
        return not self._is_swapped and self.nbytes > 0

    def _copy_slice(self, rows: slice, out: Array) -> None:
        target, nbytes = out.reshape(-1).view(np.uint8), self._row_nbytes
        for segment, part in split_slice(rows, self._boundaries):
            offset = int(self._offsets[segment]) + (part.start - int(self._boundaries[segment])) * nbytes
            target_bytes = slice((part.start - rows.start) * nbytes, (part.stop - rows.start) * nbytes)
            target[target_bytes] = self._memory[offset : offset + (part.stop - part.start) * nbytes]

    def _byte_offsets(self, rows: Array) -> Array:
        """Return the offset of each row in the mapped file, in bytes."""
        segments = find_parts(rows, self._boundaries[:-1])
        return self._offsets[segments] + (rows - self._boundaries[segments]) * self._row_nbytes

    def _first_units(self, rows: Array) -> Array:
        """Return the number of the first unit of each row."""
        units = rows * (self._row_nbytes // self._unit_nbytes)
        units += self._unit_shifts.take(find_parts(rows, self._boundaries[:-1]), mode="clip")
        return units

    def _copy_one_by_one(self, offsets: Array, out: Array) -> None:
        source, target, nbytes = self._memory.data, out.reshape(-1).view(np.uint8).data, self._row_nbytes
        for row, offset in enumerate(offsets.tolist()):
            target[row * nbytes : (row + 1) * nbytes] = source[offset : offset + nbytes]


def _make_unit_gather(memory: Array, unit_nbytes: int, row_nbytes: int) -> GatherFunction | None:
    """Return a function that gathers rows by the numbers of their first units.

    Return None if copying rows one by one is faster, or if rows have no bytes.
    """
    row_units = row_nbytes // unit_nbytes if unit_nbytes else 0
    if row_units == 1:
        return make_gather(_view_units(memory, unit_nbytes))
    is_short = row_nbytes <= _SHORT_ROW_NBYTES
    if row_units and (is_short or (row_units > _MAX_ROW_UNITS and row_nbytes <= _OVERLAP_NBYTES)):
        return make_gather(_view_overlapping_rows(memory, unit_nbytes, row_nbytes))
    if not row_units or row_units > _MAX_ROW_UNITS:
        return None
    gather_units, of_row = make_gather(_view_units(memory, unit_nbytes)), np.arange(row_units)

    def gather(first_units: Rows, out: Array) -> None:
        units = (np.asarray(first_units)[:, None] + of_row).reshape(-1)
        gather_units(units, out.reshape(-1).view(f"V{unit_nbytes}"))

    return gather


def _view_overlapping_rows(memory: Array, unit_nbytes: int, row_nbytes: int) -> Array:
    """Return a view of `memory` with an opaque row at every unit; each row overlaps the next ones."""
    count = max(0, (len(memory) - row_nbytes) // unit_nbytes + 1)
    opaque_row = memory[: row_nbytes if count else 0].view(f"V{row_nbytes}")
    return np.lib.stride_tricks.as_strided(opaque_row, (count,), (unit_nbytes,), writeable=False)


def _view_units(memory: Array, nbytes: int) -> Array:
    return memory[: len(memory) // nbytes * nbytes].view(f"V{nbytes}")
