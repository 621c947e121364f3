"""Page-locked copies of the rows at the edges of an array.

The edges are the first and the last memory page. Unless they belong to a mapped file, other data may be on the same
pages, so Forebay does not page-lock them. Before a fill that may read rows on these pages, Forebay copies all rows of
the pages to its own page-locked memory again, because the user may have changed the array. It copies few rows, because
an array has only two of these pages.
"""

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forebay.core.source import MemoryExtent
from forebay.core.spec import Array
from forebay.engines.cuda.driver import Device
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.engines.cuda.page_locks import whole_pages

__all__ = ["ExtentPart", "UnlockableEdges", "locked_span"]


@dataclass(frozen=True, slots=True)
class ExtentPart:
    """A part of a memory extent: an edge, or the rows between the edges."""

    extent: MemoryExtent
    copy_offset: int | None = None  # bytes from the start of the page-locked memory to the copy of an edge, else None


@dataclass(frozen=True, slots=True)
class _EdgeCopy:
    source: int  # address of the first row
    offset: int  # bytes from the start of the page-locked memory to the copy
    nbytes: int


class UnlockableEdges:
    """Page-locked copies of the rows at the edges of extents."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copies: list[_EdgeCopy] = []
        self._nbytes = 0
        self._memory: PageLockedMemory | None = None

    def split(self, extent: MemoryExtent, row_nbytes: int) -> list[ExtentPart]:
        """Split an extent into up to three parts: first edge, rows between, last edge.

        `locate` and `refresh` copy the edges.
        """
        start, stop = locked_span(extent, row_nbytes)
        first_locked = min(extent.rows, max(0, -(-(start - extent.address) // extent.stride)))
        end_locked = min(extent.rows, max(first_locked, (stop - row_nbytes - extent.address) // extent.stride + 1))
        parts = [(0, first_locked, True), (first_locked, end_locked, False), (end_locked, extent.rows, True)]
        return [self._make_part(extent, row_nbytes, *part) for part in parts if part[0] < part[1]]

    def _make_part(self, extent: MemoryExtent, row_nbytes: int, first: int, stop: int, is_edge: bool) -> ExtentPart:
        """Return rows `first` to `stop - 1` of an extent; plan their copy if `is_edge`."""
        address = extent.address + first * extent.stride
        part = replace(extent, first=extent.first + first, rows=stop - first, address=address)
        if not is_edge:
            return ExtentPart(part)
        nbytes = (stop - first - 1) * extent.stride + row_nbytes
        offset = self._nbytes + (address - self._nbytes) % 16  # the copy has the same 16-byte alignment as the rows
        self._copies.append(_EdgeCopy(address, offset, nbytes))
        self._nbytes = offset + nbytes
        return ExtentPart(part, offset)

    def locate(self, parts: Sequence[ExtentPart]) -> list[MemoryExtent]:
        """Return the extents that the device reads, with the addresses of the copies for edges.

        Call `split` for all extents first.
        """
        if self._memory is None and self._nbytes:
            pages = -(-self._nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            self._memory = PageLockedMemory(self._device, pages)
            self.refresh()
        base = self._memory.address if self._memory else 0
        return [
            part.extent if part.copy_offset is None else replace(part.extent, address=base + part.copy_offset)
            for part in parts
        ]

    def contains(self, addresses: Array) -> Array:
        """Return for each address whether it is in the memory of the copies."""
        base, nbytes = (self._memory.address, self._nbytes) if self._memory else (0, 0)
        return (addresses >= base) & (addresses < base + nbytes)

    def refresh(self) -> None:
        """Copy the rows of all edges again."""
        if self._memory is not None:
            for copy in self._copies:
                ctypes.memmove(self._memory.address + copy.offset, copy.source, copy.nbytes)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()


def locked_span(extent: MemoryExtent, row_nbytes: int) -> tuple[int, int]:
    """Return start and end of the pages that contain only data of this extent."""
    nbytes = (extent.rows - 1) * extent.stride + row_nbytes
    if not extent.own_pages:
        return whole_pages(extent.address, nbytes)
    page = mmap.PAGESIZE
    return extent.address // page * page, -(-(extent.address + nbytes) // page) * page
