"""Packed rows: several texts of different length in one row of fixed length.

`order/packing.py` decides which texts share a row. `PackedSource` reads the texts and writes the packed rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_array, row_count, select_rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import SourceError
from forebay.order.packing import LongTexts, PackingTable
from forebay.sources.wrapping import WrappingSource

__all__ = ["POSITIONS", "SEGMENT_IDS", "PackLayout", "PackedSource"]

# Two fields of a packed row in addition to the texts: for each token, the number of its piece in the row (from 1; 0 for
# padding), and its position in its piece.
SEGMENT_IDS, POSITIONS = "segment_ids", "positions"
_ID_DTYPE = np.dtype(np.int32)  # of both fields; the dtype that frameworks use for them
_CHUNK_NBYTES = 1 << 20  # bytes of packed rows that are made at a time; only their texts are in memory besides the slot


@dataclass(frozen=True, slots=True)
class PackLayout:
    """The form of packed rows."""

    length: int  # tokens of a packed row
    long: LongTexts  # what happens to a text with more tokens
    leaves: tuple[int, ...]  # numbers of the leaves of a text that are packed
    names: tuple[str, ...]  # the fields of a packed row for these leaves
    pads: tuple[Any, ...]  # the padding of each of these fields


class PackedSource(WrappingSource):
    """Packed rows. `gather` reads the texts of the rows from the inner source."""

    def __init__(self, inner: AbstractSource, table: PackingTable, layout: PackLayout) -> None:
        super().__init__(inner, inner_rows=len(table.texts) / len(table))
        self._table, self._layout = table, layout
        packed = tuple(ArraySpec((layout.length,), inner.specs[leaf].dtype) for leaf in layout.leaves)
        self.specs = (*packed, *(ArraySpec((layout.length,), _ID_DTYPE) for _ in range(2)))
        names = (*layout.names, SEGMENT_IDS, POSITIONS)
        self.structure = Structure(dict, names, (Structure(None),) * len(names))
        self._chunk_rows = max(1, _CHUNK_NBYTES // max(1, sum(spec.nbytes for spec in packed)))

    # The first `gather` computes `_paddings` and `_steps`, which are as long as a row. Before this, a feed may have
    # refused very long rows for lack of memory.

    @cached_property
    def _paddings(self) -> list[Array]:
        """A row of padding for each packed leaf."""
        return [np.full(self._layout.length, pad) for pad in self._layout.pads]

    @cached_property
    def _steps(self) -> tuple[Array, Array]:
        """The values of the field `positions` for pieces (0, 1, ...) and for padding (0)."""
        return np.arange(self._layout.length, dtype=_ID_DTYPE), np.zeros(self._layout.length, _ID_DTYPE)

    @property
    def infers_specs(self) -> bool:
        return False  # all packed rows have one length

    def __len__(self) -> int:
        return len(self._table)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for start in range(0, row_count(rows), self._chunk_rows):
            stop = start + self._chunk_rows
            pieces = _RowPieces.of(self._table, select_rows(rows, start, stop), self._layout.length)
            *leaves, segment_ids, positions = (leaf[start:stop] for leaf in out)
            self._copy_texts(pieces, leaves)
            segment_ids[...] = np.repeat(pieces.numbers, pieces.lengths).reshape(segment_ids.shape)
            spans = zip((pieces.numbers == 0).tolist(), pieces.lengths.tolist(), strict=True)
            _join([self._steps[is_padding][:count] for is_padding, count in spans], positions)

    def _copy_texts(self, pieces: "_RowPieces", targets: Sequence[Array]) -> None:
        is_text = pieces.numbers > 0
        numbers, text_indices = np.unique(pieces.texts[is_text], return_inverse=True)
        texts = self._inner.gather_rows(numbers.astype(np.intp, copy=False))
        indices = np.full(len(is_text), len(texts))  # index of the padding, which is appended to `values` below
        indices[is_text] = text_indices
        firsts, lasts = pieces.first_tokens.tolist(), (pieces.first_tokens + pieces.lengths).tolist()
        spans = list(zip(indices.tolist(), firsts, lasts, strict=True))
        for leaf, target, padding in zip(self._layout.leaves, targets, self._paddings, strict=True):
            values = [text[leaf] for text in texts]
            self._check_values(values, leaf, numbers)
            self._check_lengths(values, leaf, numbers, pieces, indices)
            self._check_equal_lengths(texts, leaf, numbers)
            values.append(padding)
            _join([values[index][first:last] for index, first, last in spans], target)

    def _check_values(self, values: Sequence[Array], leaf: int, numbers: Array) -> None:
        dtype = self._inner.specs[leaf].dtype
        if all(array.dtype == dtype and array.ndim == 1 for array in values):
            return
        for number, array in zip(numbers, values, strict=True):
            if array.ndim != 1 or not np.can_cast(array.dtype, dtype, "equiv"):
                name, found = self._inner.structure.paths[leaf], ArraySpec(array.shape, array.dtype)
                raise SourceError(f"row {number} has {found} in {name!r}. Pack rows of one dimension and of {dtype}.")

    def _check_lengths(
        self, values: Sequence[Array], leaf: int, numbers: Array, pieces: "_RowPieces", indices: Array
    ) -> None:
        """Raise SourceError if a text does not have the length that `pack()` counted.

        A piece that fills its row may be a part of a longer text. So for such a piece, the text may be longer.
        """
        is_text = pieces.numbers > 0
        found = np.array([len(array) for array in values], np.int64)[indices[is_text]]
        counted = (pieces.first_tokens + pieces.lengths)[is_text]
        fills_row = (pieces.lengths[is_text] == self._layout.length) & (self._layout.long != "error")
        wrong = np.flatnonzero((found != counted) & ~(fills_row & (found > counted)))
        if len(wrong):
            name, piece = self._inner.structure.paths[leaf], wrong[0]
            raise SourceError(
                f"row {numbers[indices[is_text][piece]]} has {found[piece]} values in {name!r}, but pack() counted "
                f"{counted[piece]}. All packed fields of a row need one length, which must not change. Correct "
                "lengths=, or leave out the field with drop=."
            )

    def _check_equal_lengths(self, texts: Sequence[Sequence[Array]], leaf: int, numbers: Array) -> None:
        """Raise SourceError if two packed leaves of a text differ in length.

        `_check_lengths` does not find all such texts: if a piece fills its row, it accepts any longer text.
        """
        first, names = self._layout.leaves[0], self._inner.structure.paths
        if leaf == first:
            return
        for number, text in zip(numbers, texts, strict=True):
            if len(text[leaf]) != len(text[first]):
                raise SourceError(
                    f"row {number} has {len(text[leaf])} values in {names[leaf]!r}, but {len(text[first])} in "
                    f"{names[first]!r}. All packed fields of a row need one length. Correct the row, or leave out the "
                    "field with drop=."
                )


@dataclass(frozen=True, slots=True)
class _RowPieces:
    """The pieces of some packed rows, row after row.

    The last piece of each row is its padding. The pieces before it are in the order of the source.
    """

    numbers: Array  # the number of each piece in its row, from 1; 0 for padding
    texts: Array  # the row number of the text of each piece in the inner source
    lengths: Array  # tokens of each piece
    first_tokens: Array  # where each piece begins in its text; 0 for padding

    @classmethod
    def of(cls, table: PackingTable, rows: Rows, row_length: int) -> "_RowPieces":
        packed_rows = row_array(rows)
        first_pieces = table.first_pieces[packed_rows].astype(np.int64)
        counts = table.first_pieces[packed_rows + 1].astype(np.int64) - first_pieces
        ends = np.cumsum(counts)
        row_of_piece = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(row_of_piece)) - (ends - counts)[row_of_piece]
        pieces = first_pieces[row_of_piece] + places
        pieces = pieces[np.lexsort((table.texts[pieces], row_of_piece))]
        lengths = table.lengths[pieces].astype(np.int64)
        used = np.bincount(row_of_piece, lengths, len(counts)).astype(np.int64)
        starts = 0 if table.starts is None else table.starts[pieces].astype(np.int64) * row_length
        return cls(
            np.insert(places + 1, ends, 0).astype(_ID_DTYPE),
            np.insert(table.texts[pieces], ends, 0),
            np.insert(lengths, ends, row_length - used),
            np.insert(np.zeros_like(lengths) + starts, ends, 0),
        )


def _join(arrays: Sequence[Array], target: Array) -> None:
    """Write arrays with one dimension to the target, one after the other."""
    if target.flags.c_contiguous:
        np.concatenate(arrays, out=target.reshape(-1))
    else:
        target[...] = np.concatenate(arrays).reshape(target.shape)
