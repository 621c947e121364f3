"""Rows that lie whole in a mapped file, but in pieces: chunks or batches that were stored as they are.

The file is seen as one array of the largest unit that every row begins and ends on. A row is then a few units, and
one `take` gathers rows of any number of pieces. Long rows of awkward places are copied one by one instead.
"""

import math
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.sources.arrays import gather_leaf, memory_region

__all__ = ["PiecesLeaf"]

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_MOST_UNITS = 16  # in a row: with more, copying row by row is as quick


class PiecesLeaf:
    """One leaf: row `starts[i] + k` lies at byte `offsets[i] + k * row_nbytes`; `starts` ends with the length."""

    held_nbytes = 0
    chunk_rows = 1  # any row is as near as any other

    def __init__(
        self, spec: ArraySpec, starts: Numbers, memory: Array, offsets: Numbers, *, swapped: bool = False
    ) -> None:
        self.spec, self.length = spec, int(starts[-1])
        self._starts, self._offsets, self._memory = starts, offsets, memory
        self._row_nbytes, self._swapped = spec.nbytes, swapped
        unit = math.gcd(self._row_nbytes, *(offsets - offsets[:1]).tolist())
        base = int(offsets[0]) % unit if unit and len(offsets) else 0
        self._unit_nbytes, self._base = unit, base
        self._take = (
            gather_leaf(_units(memory[base:], unit)) if unit and self._row_nbytes // unit <= _MOST_UNITS else None
        )

    @property
    def nbytes(self) -> int:
        return self.length * self._row_nbytes

    def gather(self, rows: Rows, out: Array) -> None:
        if len(out) == 0 or not self._row_nbytes:
            return
        if isinstance(rows, slice):
            self._copy_run(rows, out)
        else:
            self._copy(self._places(rows), out)
        if self._swapped:
            out.byteswap(inplace=True)

    def memory(self) -> list[MemoryRegion]:
        """The file, since its rows lie in it."""
        return [memory_region(self._memory)] if self._extents_are_plain else []

    def extents(self) -> list[MemoryExtent]:
        """Where the rows of each piece lie."""
        if not self._extents_are_plain:
            return []
        address = self._memory.__array_interface__["data"][0]
        pieces = zip(self._starts[:-1].tolist(), np.diff(self._starts).tolist(), self._offsets.tolist(), strict=True)
        return [
            MemoryExtent(first, rows, address + offset, self._row_nbytes, writable=False, own_pages=True)
            for first, rows, offset in pieces
            if rows
        ]

    @property
    def _extents_are_plain(self) -> bool:
        return not self._swapped and self.nbytes > 0

    def _places(self, numbers: Array) -> Array:
        pieces = np.searchsorted(self._starts, numbers, side="right") - 1
        return self._offsets[pieces] + (numbers - self._starts[pieces]) * self._row_nbytes

    def _copy_run(self, rows: slice, out: Array) -> None:
        target, nbytes, start = out.reshape(-1).view(np.uint8), self._row_nbytes, rows.start
        while start < rows.stop:
            piece = int(np.searchsorted(self._starts, start, side="right")) - 1
            stop = min(rows.stop, int(self._starts[piece + 1]))
            place = int(self._offsets[piece]) + (start - int(self._starts[piece])) * nbytes
            to = slice((start - rows.start) * nbytes, (stop - rows.start) * nbytes)
            target[to] = self._memory[place : place + (stop - start) * nbytes]
            start = stop

    def _copy(self, places: Array, out: Array) -> None:
        if self._take is None:
            self._copy_each(places, out)
            return
        count = self._row_nbytes // self._unit_nbytes
        units = (places - self._base) // self._unit_nbytes
        if count > 1:
            units = (units[:, None] + np.arange(count)).reshape(-1)
        self._take(units, out.reshape(-1).view(f"V{self._unit_nbytes}"))

    def _copy_each(self, places: Array, out: Array) -> None:
        source, target, nbytes = self._memory.data, out.reshape(-1).view(np.uint8).data, self._row_nbytes
        for number, place in enumerate(places.tolist()):
            target[number * nbytes : (number + 1) * nbytes] = source[place : place + nbytes]


def _units(memory: Array, nbytes: int) -> Array:
    return memory[: len(memory) // nbytes * nbytes].view(f"V{nbytes}")
