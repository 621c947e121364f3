"""An address for every byte of all files of a source.

Readers sort the addresses of rows, and read rows that are close to each other in a file by one read. The address of a
byte is `file number << 44 | offset in the file`. Files are shorter than 2^44 bytes (16 TiB). So bytes with neighbouring
addresses are in one file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows, find_parts
from forebay.core.source import FileExtent

__all__ = ["AddressSpace", "Integers", "RowRun"]

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_OFFSET_BITS = 44  # low bits of an address, which hold the offset in the file
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class RowRun:
    """Consecutive rows of one leaf at a constant stride in one file."""

    leaf: int
    first: int  # position of the first row, relative to the first requested row
    rows: int
    address: int  # of the first row
    stride: int  # bytes from the start of one row to the next
    nbytes: int  # from the first byte of the first row to the last byte of the last row


class AddressSpace:
    """The addresses of the rows of every leaf."""

    def __init__(self, extents: Sequence[Sequence[FileExtent]], row_nbytes: Sequence[int]) -> None:
        """Make the address space from the file extents and row sizes of each leaf."""
        files = {extent.path: extent.stamp for leaf in extents for extent in leaf}
        self.paths: list[Path] = list(files)
        self.stamps = list(files.values())
        self.row_nbytes = list(row_nbytes)
        file_numbers = {path: number for number, path in enumerate(self.paths)}
        self._leaves = [_LeafExtents.of(leaf, file_numbers) for leaf in extents]

    def addresses(self, leaf: int, rows: Integers) -> Integers:
        """Return the address of the first byte of each row."""
        return self._leaves[leaf].addresses(rows)

    def row_runs(self, start: int, stop: int) -> Iterator[RowRun]:
        """Yield the runs that hold rows `start` to `stop - 1`, leaf by leaf."""
        for number, (leaf, row_nbytes) in enumerate(zip(self._leaves, self.row_nbytes, strict=True)):
            yield from leaf.row_runs(number, start, stop, row_nbytes)

    def starts_and_nbytes(self, rows: Rows) -> tuple[Integers, Integers]:
        """Return the start addresses and lengths of the byte ranges that hold these rows.

        A slice has one range for each run of its rows. An array of row numbers has one for each leaf of each row.
        """
        if isinstance(rows, slice):
            runs = list(self.row_runs(rows.start, rows.stop))
            return np.array([run.address for run in runs]), np.array([run.nbytes for run in runs])
        starts = [self.addresses(leaf, rows) for leaf in range(len(self._leaves))]
        nbytes = [np.full(len(rows), row_nbytes) for row_nbytes in self.row_nbytes]
        return np.concatenate(starts), np.concatenate(nbytes)

    def max_read_nbytes(self, rows: int, alignment: int) -> int:
        """Return an upper bound of the bytes to read for any `rows` consecutive rows."""
        leaves = zip(self._leaves, self.row_nbytes, strict=True)
        return sum(leaf.max_read_nbytes(rows, row_nbytes, alignment) for leaf, row_nbytes in leaves)

    @staticmethod
    def file_numbers(addresses: Integers) -> Integers:
        """Return the number of the file of each address."""
        return addresses >> _OFFSET_BITS

    @staticmethod
    def file_offsets(addresses: Integers) -> Integers:
        """Return the offset of each address in its file."""
        return addresses & _OFFSET_MASK


@dataclass(frozen=True, slots=True)
class _LeafExtents:
    """The file extents of one leaf, without empty extents, as arrays."""

    first_rows: Integers  # number of the first row of each extent
    base_addresses: Integers  # address of the first row of each extent
    strides: Integers  # bytes from the start of one row to the next, for each extent
    length: int  # rows of all extents

    @classmethod
    def of(cls, extents: Sequence[FileExtent], file_numbers: dict[Path, int]) -> "_LeafExtents":
        used = [extent for extent in extents if extent.rows]
        bases = [(file_numbers[extent.path] << _OFFSET_BITS) + extent.offset for extent in used]
        first_rows, strides = [extent.first for extent in used], [extent.stride for extent in used]
        length = used[-1].first + used[-1].rows if used else 0
        return cls(np.array(first_rows, np.int64), np.array(bases, np.int64), np.array(strides, np.int64), length)

    def addresses(self, rows: Integers) -> Integers:
        extents: Any = 0
        if len(self.first_rows) > 1:
            extents = find_parts(rows, self.first_rows)
        addresses: Integers = self.base_addresses[extents] + (rows - self.first_rows[extents]) * self.strides[extents]
        return addresses

    def row_runs(self, leaf: int, start: int, stop: int, row_nbytes: int) -> Iterator[RowRun]:
        extent = int(np.searchsorted(self.first_rows, start, side="right")) - 1
        row = start
        while row < stop:
            end = int(self.first_rows[extent + 1]) if extent + 1 < len(self.first_rows) else self.length
            rows, stride = min(stop, end) - row, int(self.strides[extent])
            address = int(self.base_addresses[extent]) + (row - int(self.first_rows[extent])) * stride
            yield RowRun(leaf, row - start, rows, address, stride, (rows - 1) * stride + row_nbytes)
            row, extent = row + rows, extent + 1

    def max_read_nbytes(self, rows: int, row_nbytes: int, alignment: int) -> int:
        # Rows that start in the middle of an extent can touch one extent more than rows that start with the extent.
        ends = np.searchsorted(self.first_rows, self.first_rows + rows)
        max_runs = int((ends - np.arange(len(ends))).max(initial=0)) + 1
        span = (min(rows, self.length) - 1) * int(self.strides.max(initial=row_nbytes)) + row_nbytes
        return span + max_runs * 2 * alignment  # alignment extends a run at both ends
