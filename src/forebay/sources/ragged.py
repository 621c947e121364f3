"""Rows of different length that lie one after the other in one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Tree, flatten
from forebay.errors import SpecError

__all__ = ["RaggedSource"]


class RaggedSource(AbstractSource):
    """Row i has the values `offsets[i]` to `offsets[i + 1] - 1` of each leaf. No value is copied."""

    def __init__(self, values: Tree, offsets: Any) -> None:
        leaves, self.structure = flatten(values)
        self._values = [_as_values(leaf, name) for leaf, name in zip(leaves, self.structure.paths, strict=True)]
        self._offsets = _as_offsets(offsets)
        for array, name in zip(self._values, self.structure.paths, strict=True):
            if len(array) < self._offsets[-1]:
                raise SpecError(
                    f"the last offset is {self._offsets[-1]}, but {name!r} has only {len(array)} values. Pass offsets "
                    "into this array."
                )
        self.specs = tuple(ArraySpec((None, *array.shape[1:]), array.dtype) for array in self._values)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for number, (row, leaves) in enumerate(zip(row_numbers(rows), self.gather_rows(rows), strict=True)):
            for target, leaf, name in zip(out, leaves, self.structure.paths, strict=True):
                if leaf.shape != target.shape[1:]:
                    raise SpecError(
                        f"row {row} has {len(leaf)} values in {name!r}, but {target.shape[1]} are expected. Pad the "
                        "rows with batch(..., pad=0)."
                    )
                target[number] = leaf

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        """Return views of the values of each row."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        spans = zip(self._offsets[numbers].tolist(), self._offsets[numbers + 1].tolist(), strict=True)
        values = self._values
        if len(values) == 1:
            (array,) = values
            return [[array[start:stop]] for start, stop in spans]
        return [[array[start:stop] for array in values] for start, stop in spans]

    def row_lengths(self, leaf: int) -> Array:
        return np.diff(self._offsets)


def _as_values(leaf: Any, name: str) -> Array:
    array = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
    if array.ndim == 0 or isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            f"{name!r} is {type(leaf).__name__} with the shape {array.shape}. Pass a plain array with the values of "
            "all rows, one row after the other."
        )
    # A plain view: slices of np.memmap take several times as long.
    return array.view(np.ndarray)


def _as_offsets(offsets: Any) -> Array:
    array = np.asarray(offsets)
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) < 2:
        raise SpecError(
            f"the offsets are {array.dtype}{list(array.shape)}. Pass integers, one more than there are rows: where "
            "each row begins, then where the last row ends."
        )
    array = array.view(np.ndarray).astype(np.int64, copy=False)
    falls = np.flatnonzero(array[1:] < array[:-1])
    if array[0] < 0 or len(falls):
        row = int(falls[0]) if len(falls) else 0
        raise SpecError(
            f"row {row} begins at offset {array[row]} and ends at {array[row + 1]}. Offsets must not be negative or "
            "decrease. Sort the rows by their offsets."
        )
    return array
