"""The rows at both ends of an array, which share a page with somebody else's memory and so cannot be page-locked there.

They are copied to page-locked memory of our own, and copied again before every fill, since the user may have changed
them. There are a few at most, or all of a small array.
"""

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forebay.core.source import Extent
from forebay.core.spec import Array
from forebay.engines.cuda.driver import Device
from forebay.engines.cuda.memory import LockedMemory
from forebay.engines.cuda.page_locks import whole_pages

__all__ = ["Edges", "locked_span"]


@dataclass(frozen=True, slots=True)
class _Copied:
    source: int
    offset: int
    nbytes: int


class Edges:
    """Page-locked copies of what lies at the ends of extents."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copied: list[_Copied] = []
        self._nbytes = 0
        self._memory: LockedMemory | None = None

    def cut(self, extent: Extent, row_nbytes: int) -> list[Extent]:
        """The extent as up to three: its ends in our own memory, once they have a place there, the rest where it is."""
        start, stop = locked_span(extent, row_nbytes)
        last = extent.rows - 1
        head = min(extent.rows, max(0, -(-(start - extent.address) // extent.stride)))
        tail = min(extent.rows, max(head, (stop - row_nbytes - extent.address) // extent.stride + 1))
        parts = [(0, head, True), (head, tail, False), (tail, last + 1, True)]
        return [self._part(extent, row_nbytes, *part) for part in parts if part[0] < part[1]]

    def _part(self, extent: Extent, row_nbytes: int, first: int, stop: int, ours: bool) -> Extent:
        address = extent.address + first * extent.stride
        part = replace(extent, first=extent.first + first, rows=stop - first, address=address)
        if not ours:
            return part
        nbytes = (stop - first - 1) * extent.stride + row_nbytes
        offset = self._nbytes + (address - self._nbytes) % 16  # as far from a multiple of sixteen as it was
        self._copied.append(_Copied(address, offset, nbytes))
        self._nbytes = offset + nbytes
        return replace(part, address=-offset - 1)

    def place(self, extents: Sequence[Extent]) -> list[Extent]:
        """The same extents with the addresses of our copies, once all were cut."""
        if self._memory is None and self._nbytes:
            pages = -(-self._nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            self._memory = LockedMemory(self._device, pages)
            self.refresh()
        base = self._memory.address if self._memory else 0
        return [
            extent if extent.address >= 0 else replace(extent, address=base - extent.address - 1) for extent in extents
        ]

    def hold(self, addresses: Array) -> Array:
        """Which of these lie in our copies."""
        base, nbytes = (self._memory.address, self._nbytes) if self._memory else (0, 0)
        return (addresses >= base) & (addresses < base + nbytes)

    def refresh(self) -> None:
        """Copy them again, as they are now."""
        if self._memory is not None:
            for copied in self._copied:
                ctypes.memmove(self._memory.address + copied.offset, copied.source, copied.nbytes)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()


def locked_span(extent: Extent, row_nbytes: int) -> tuple[int, int]:
    """Which pages of an extent are locked: all it touches where they are its own, else those it fills."""
    nbytes = (extent.rows - 1) * extent.stride + row_nbytes
    if not extent.own_pages:
        return whole_pages(extent.address, nbytes)
    page = mmap.PAGESIZE
    return extent.address // page * page, -(-(extent.address + nbytes) // page) * page
