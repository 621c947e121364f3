"""All bytes of all files as one line of addresses, so that rows of many files are sorted and merged like those of one.

An address is a file's number and a byte in it: `number << 44 | byte`. Two files are 16 TiB apart, so nothing is ever
merged across them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.core.source import Rows, Stored

__all__ = ["Addresses", "Piece", "Space"]

Addresses: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

FILE_BITS = 44
_BYTE_MASK = (1 << FILE_BITS) - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one leaf that follow each other in one file; `first` counts from the first row asked for."""

    leaf: int
    first: int
    rows: int
    address: int
    stride: int
    nbytes: int  # from the first byte of its first row to the last of its last


class Space:
    """Where the rows of every leaf lie."""

    def __init__(self, leaves: Sequence[Sequence[Stored]], row_nbytes: Sequence[int]) -> None:
        files = {stored.path: stored.stamp for leaf in leaves for stored in leaf}
        self.paths: list[Path] = list(files)
        self.stamps = list(files.values())
        self.row_nbytes = list(row_nbytes)
        numbers = {path: number for number, path in enumerate(self.paths)}
        self._leaves = [_Leaf.of(leaf, numbers) for leaf in leaves]

    def addresses(self, leaf: int, rows: Addresses) -> Addresses:
        """Of the first byte of each row."""
        return self._leaves[leaf].addresses(rows)

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Rows from start to stop, leaf after leaf, in as few pieces as they lie in."""
        for number, (leaf, row_nbytes) in enumerate(zip(self._leaves, self.row_nbytes, strict=True)):
            yield from leaf.pieces(number, start, stop, row_nbytes)

    def starts_and_nbytes(self, rows: Rows) -> tuple[Addresses, Addresses]:
        """What must be read for these rows: where it begins, and how long it is."""
        if isinstance(rows, slice):
            pieces = list(self.pieces(rows.start, rows.stop))
            return np.array([piece.address for piece in pieces]), np.array([piece.nbytes for piece in pieces])
        starts = [self.addresses(leaf, rows) for leaf in range(len(self._leaves))]
        nbytes = [np.full(len(rows), row_nbytes) for row_nbytes in self.row_nbytes]
        return np.concatenate(starts), np.concatenate(nbytes)

    def most_nbytes(self, rows: int, alignment: int) -> int:
        """As much as reading so many rows that follow each other may take, wherever they begin."""
        leaves = zip(self._leaves, self.row_nbytes, strict=True)
        return sum(leaf.most_nbytes(rows, row_nbytes, alignment) for leaf, row_nbytes in leaves)

    @staticmethod
    def files(addresses: Addresses) -> Addresses:
        """The numbers of the files they lie in."""
        return addresses >> FILE_BITS

    @staticmethod
    def offsets(addresses: Addresses) -> Addresses:
        """The bytes of the files they are."""
        return addresses & _BYTE_MASK


@dataclass(frozen=True, slots=True)
class _Leaf:
    firsts: Addresses
    bases: Addresses
    strides: Addresses
    length: int

    @classmethod
    def of(cls, stored: Sequence[Stored], numbers: dict[Path, int]) -> "_Leaf":
        kept = [one for one in stored if one.rows]
        bases = [(numbers[one.path] << FILE_BITS) + one.offset for one in kept]
        firsts, strides = [one.first for one in kept], [one.stride for one in kept]
        length = kept[-1].first + kept[-1].rows if kept else 0
        return cls(np.array(firsts, np.int64), np.array(bases, np.int64), np.array(strides, np.int64), length)

    def addresses(self, rows: Addresses) -> Addresses:
        which: Any = 0
        if len(self.firsts) > 1:
            which = np.searchsorted(self.firsts, rows, side="right") - 1
        found: Addresses = self.bases[which] + (rows - self.firsts[which]) * self.strides[which]
        return found

    def pieces(self, number: int, start: int, stop: int, row_nbytes: int) -> Iterator[Piece]:
        which = int(np.searchsorted(self.firsts, start, side="right")) - 1
        row = start
        while row < stop:
            end = int(self.firsts[which + 1]) if which + 1 < len(self.firsts) else self.length
            rows, stride = min(stop, end) - row, int(self.strides[which])
            address = int(self.bases[which]) + (row - int(self.firsts[which])) * stride
            yield Piece(number, row - start, rows, address, stride, (rows - 1) * stride + row_nbytes)
            row, which = row + rows, which + 1

    def most_nbytes(self, rows: int, row_nbytes: int, alignment: int) -> int:
        ends = np.searchsorted(self.firsts, self.firsts + rows)
        pieces = int((ends - np.arange(len(ends))).max(initial=0)) + 1
        span = (min(rows, self.length) - 1) * int(self.strides.max(initial=row_nbytes)) + row_nbytes
        return span + pieces * 2 * alignment
