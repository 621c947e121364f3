"""Packing: which texts share a row of fixed length.

The packing is best fit in decreasing order of length: each text goes to the fullest row that still has room for it.
Texts of one length are interchangeable, so the algorithm works on the histogram of the lengths. Equal rows form one
`_Group` with a count. The time of the algorithm depends on the number of different lengths, not on the number of texts.

Then the algorithm shuffles the packed rows, and each row takes the next unused text of each of its lengths. Texts of
one length keep the order of the source. So the texts of one row are from about the same part of the source, and packed
rows follow the order of the source approximately. But the texts of a row are not neighbours in the source.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.order.choices import hash_array
from forebay.order.device_steps import DeviceSteps
from forebay.order.orders import Order
from forebay.order.permutation import Permutation, Positions, derive_key

__all__ = ["LongTexts", "Packed", "PackingTable", "pack_texts"]

LongTexts: TypeAlias = Literal["split", "truncate", "error"]

# Part of the derived key of a packing, so that a shuffle with the same seed has another key.
_PACKING_KEY = int.from_bytes(b"pack rows", "big")
# Number of different lengths that 16 bits can represent. NumPy uses a radix sort for 16-bit integers, which is several
# times faster than its sort of longer integers.
_RADIX_LENGTHS = 1 << 16


@dataclass(frozen=True, slots=True)
class PackingTable:
    """The pieces of texts in each packed row.

    A piece is a whole text, or a part of a text that is longer than a row.
    """

    first_pieces: Array  # index of the first piece of each packed row, then the number of pieces
    texts: Array  # index of the text of each piece
    lengths: Array  # tokens of each piece
    starts: Array | None  # first token of each piece, in multiples of the row length; None if all pieces begin at 0

    def __len__(self) -> int:
        return len(self.first_pieces) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        arrays = (self.first_pieces, self.texts, self.lengths, self.starts)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, slots=True)
class Packed:
    """The order of packed rows. `describe` identifies the packing, for the fingerprint."""

    inner: Order  # the order of the texts
    table: PackingTable = field(compare=False, repr=False)
    row_length: int
    tokens: int  # number of tokens in all packed rows, without padding
    digest: str  # identifies the lengths of the texts, and the options of the packing
    is_sequential: ClassVar[bool] = True
    is_fixed: ClassVar[bool] = True
    is_ascending: ClassVar[bool] = True
    repeats_rows: ClassVar[bool] = False
    epoch_nbytes: ClassVar[int] = 0  # `table` is the same in every epoch

    @classmethod
    def of(cls, inner: Order, lengths: Array, row_length: int, *, long: LongTexts, seed: int) -> "Packed":
        """Pack the texts of an order, and return the order of the packed rows.

        `lengths[p]` is the number of tokens of the text at position `p`.
        """
        table = pack_texts(lengths, row_length, splits=long == "split", seed=seed)
        tokens = int(table.lengths.sum(dtype=np.int64))
        hashed = lengths.astype(_index_dtype(int(lengths.max())), copy=False)
        digest = f"{hash_array(hashed)} {long} {seed}"
        return cls(inner, table, row_length, tokens, digest)

    @property
    def length(self) -> int:
        return len(self.table)

    @property
    def fill(self) -> float:
        """The share of the packed rows that is not padding."""
        return self.tokens / (self.length * self.row_length)

    def rows(self, epoch: int, positions: Positions) -> Positions:
        return positions

    def device_steps(self, epoch: int) -> DeviceSteps | None:
        return ()

    def describe(self) -> tuple[Any, ...]:
        return ("packed", self.length, self.row_length, self.digest, *self.inner.describe())


def pack_texts(lengths: Array, row_length: int, *, splits: bool, seed: int) -> PackingTable:
    """Pack texts into rows of `row_length` tokens; return their pieces.

    Texts without tokens are in no row. With `splits`, the function cuts texts that are longer than a row into pieces.
    Without, it drops their tokens after the first `row_length`.
    """
    pieces = _TextPieces.of(lengths, row_length, splits=splits)
    counts = np.bincount(pieces.lengths)
    groups = _GroupLengths.of(_fit_histogram(counts, row_length))
    rows = groups.shuffled(derive_key(seed, _PACKING_KEY))
    first_pieces = np.concatenate(([0], np.cumsum(groups.sizes[rows], dtype=np.int64)))
    row_lengths = groups.piece_lengths(rows, first_pieces).astype(pieces.lengths.dtype, copy=False)
    chosen = np.empty(len(row_lengths), _index_dtype(len(pieces.lengths)))
    # Skip the pieces without tokens, which come first in the sorted order.
    chosen[_sort_by_length(row_lengths, counts)] = _sort_by_length(pieces.lengths, counts)[counts[0] :]
    starts = pieces.starts(chosen)
    return PackingTable(first_pieces.astype(_index_dtype(len(chosen))), pieces.texts(chosen), row_lengths, starts)


@dataclass(frozen=True, slots=True)
class _TextPieces:
    """The pieces of all texts.

    The first `text_count` pieces are the ends of the texts; the end of a short text is the whole text. Each further
    piece fills a whole row.
    """

    row_length: int
    lengths: Array  # tokens of each piece
    text_count: int
    long_texts: Array  # indices of the texts with pieces that fill a whole row
    cut_lengths: Array  # for each of `long_texts`, the number of tokens in these pieces

    @classmethod
    def of(cls, lengths: Array, row_length: int, *, splits: bool) -> "_TextPieces":
        dtype, longest = np.min_scalar_type(row_length), int(lengths.max(initial=0))
        if longest <= row_length or not splits:
            nothing = np.zeros(0, np.int64)
            clipped = np.minimum(lengths, row_length) if longest > row_length else lengths
            return cls(row_length, clipped.astype(dtype), len(lengths), nothing, nothing)
        long_texts = np.flatnonzero(lengths >= row_length)
        long_lengths = lengths[long_texts].astype(np.int64)
        ends = long_lengths % row_length
        cut_lengths = long_lengths - ends
        piece_lengths = np.full(len(lengths) + int(cut_lengths.sum()) // row_length, row_length, dtype)
        piece_lengths[: len(lengths)] = lengths  # may overflow for long texts, whose ends the next line writes
        piece_lengths[long_texts] = ends
        return cls(row_length, piece_lengths, len(lengths), long_texts, cut_lengths)

    def texts(self, pieces: Array) -> Array:
        """Return the index of the text of each of these pieces."""
        if not len(self.long_texts):
            return pieces
        texts = np.arange(len(self.lengths), dtype=_index_dtype(len(self.lengths)))
        texts[self.text_count :] = np.repeat(self.long_texts, self._cut_counts)
        return texts[pieces]

    def starts(self, pieces: Array) -> Array | None:
        """Return the first token of each of these pieces, in multiples of the row length.

        Return None if all pieces begin at token 0.
        """
        if not len(self.long_texts):
            return None
        counts = self._cut_counts
        starts = np.zeros(len(self.lengths), np.min_scalar_type(int(counts.max())))
        starts[self.long_texts] = counts
        first_pieces = np.cumsum(counts) - counts
        starts[self.text_count :] = np.arange(counts.sum()) - np.repeat(first_pieces, counts)
        return np.asarray(starts[pieces])

    @property
    def _cut_counts(self) -> Array:
        return self.cut_lengths // self.row_length


@dataclass(frozen=True, slots=True)
class _Group:
    """Packed rows with texts of the same lengths."""

    count: int  # number of packed rows
    space: int  # free tokens in each row
    length: int  # tokens of each text that `add` added last
    added: int  # number of texts that `add` added last to each row
    before: "_Group | None" = None  # the group before `add`, with the earlier texts of each row; None for empty rows

    def split(self, count: int) -> "_Group":
        """Return a separate group with `count` rows of this group."""
        return _Group(count, self.space, self.length, self.added, self.before)

    def add(self, count: int, length: int, added: int) -> "_Group":
        """Return a group with `count` rows of this group, each with `added` texts more."""
        return _Group(count, self.space - length * added, length, added, self)


class _OpenRows:
    """Groups of packed rows, by the number of their free tokens."""

    def __init__(self) -> None:
        self._groups: dict[int, list[_Group]] = {}
        self._spaces: list[int] = []  # the keys of `_groups`, sorted

    def add(self, group: _Group) -> None:
        if group.space not in self._groups:
            self._groups[group.space] = []
            insort(self._spaces, group.space)
        self._groups[group.space].append(group)

    def take(self, length: int) -> _Group | None:
        """Remove and return the fullest group with room for a text of this length."""
        index = bisect_left(self._spaces, length)
        if index == len(self._spaces):
            return None
        groups = self._groups[self._spaces[index]]
        group = groups.pop()
        if not groups:
            del self._groups[self._spaces.pop(index)]
        return group

    def groups(self) -> list[_Group]:
        return [group for space in self._spaces for group in self._groups[space]]


def _fit_histogram(counts: Array, row_length: int) -> list[_Group]:
    """Pack `counts[n]` texts of each length n, and return the groups of packed rows.

    Begin with the longest texts. Each text goes to the fullest row with room for it.
    """
    rows = _OpenRows()
    for length in (np.flatnonzero(counts[1:]) + 1)[::-1].tolist():
        texts = int(counts[length])
        while texts and (group := rows.take(length)) is not None:
            texts = _fill_group(rows, group, length, texts)
        if texts:
            empty = _Group(-(-texts // (row_length // length)), row_length, 0, 0)
            _fill_group(rows, empty, length, texts)
    return rows.groups()


def _fill_group(rows: _OpenRows, group: _Group, length: int, texts: int) -> int:
    """Add texts of one length to the rows of a group, as many as fit.

    Write the resulting groups to `rows`. Return how many texts are left.
    """
    each = group.space // length
    full = min(group.count, texts // each)
    if full:
        rows.add(group.add(full, length, each))
    texts -= full * each
    rest = group.count - full
    if rest and texts:  # fewer texts are left than fit in one row
        rows.add(group.add(1, length, texts))
        rest, texts = rest - 1, 0
    if rest:
        rows.add(group.split(rest))
    return texts


@dataclass(frozen=True, slots=True)
class _GroupLengths:
    """The lengths of the texts in the rows of each group."""

    counts: Array  # number of packed rows of each group
    sizes: Array  # number of texts in each row of a group
    lengths: Array  # tokens of each text in a row of the first group, then of the second group, and so on

    @classmethod
    def of(cls, groups: Sequence[_Group]) -> "_GroupLengths":
        lengths: list[int] = []
        sizes = []
        for group in groups:
            known, link = len(lengths), group
            while link.before is not None:
                lengths += [link.length] * link.added
                link = link.before
            sizes.append(len(lengths) - known)
        return cls(np.array([group.count for group in groups]), np.array(sizes), np.array(lengths))

    def shuffled(self, key: int) -> Array:
        """Return the group of each packed row, in random order."""
        rows = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        return rows[Permutation(len(rows), key)(np.arange(len(rows), dtype=np.int64))]

    def piece_lengths(self, rows: Array, first_pieces: Array) -> Array:
        """Return the lengths of the texts of all packed rows, one after the other.

        `rows[i]` is the group of packed row i.
        """
        first_lengths = np.cumsum(self.sizes) - self.sizes
        dtype = np.int32 if first_pieces[-1] < 2**31 else np.int64  # int32 halves the memory
        shifts = (first_lengths[rows] - first_pieces[:-1]).astype(dtype)
        indices = np.repeat(shifts, self.sizes[rows])
        indices += np.arange(len(indices), dtype=dtype)
        return np.asarray(self.lengths[indices])


def _sort_by_length(lengths: Array, counts: Array) -> Array:
    """Return the indices that sort the lengths. Equal lengths keep their order.

    `counts[n]` is the number of lengths that equal n.
    """
    if len(counts) > _RADIX_LENGTHS and np.count_nonzero(counts) <= _RADIX_LENGTHS:
        lengths = (np.cumsum(counts > 0) - 1).astype(np.uint16)[lengths]
    return np.argsort(lengths, kind="stable")


def _index_dtype(length: int) -> type[np.integer[Any]]:
    """Return a dtype for numbers up to `length`: 32 bits if possible, to save memory."""
    return np.uint32 if length < 2**32 else np.int64
