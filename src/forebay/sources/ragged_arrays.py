"""A source of arrays in memory, some of which have rows of different length."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, Tree, flatten
from forebay.errors import SpecError
from forebay.sources.arrays import ArraySource, memory_region

__all__ = ["RaggedArraySource", "has_ragged_leaves"]


def has_ragged_leaves(tree: Tree) -> bool:
    """Return whether a leaf of the tree is `Ragged`."""
    return isinstance(tree, Ragged) or any(isinstance(leaf, Ragged) for leaf in flatten(tree)[0])


class RaggedArraySource(AbstractSource):
    """The rows of arrays and `Ragged` leaves with equal numbers of rows, without a copy."""

    def __init__(self, tree: Tree) -> None:
        leaves, self.structure = flatten(tree)
        self._leaves = [
            _check_ragged(leaf, name) if isinstance(leaf, Ragged) else ArraySource(leaf)
            for leaf, name in zip(leaves, self.structure.paths, strict=True)
        ]
        lengths = {name: len(leaf) for leaf, name in zip(self._leaves, self.structure.paths, strict=True)}
        if len({*lengths.values()}) > 1:
            listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise SpecError(f"all arrays need the same number of rows, but {listed}. Shorten the longer arrays.")
        self.specs = tuple(leaf.row_spec if isinstance(leaf, Ragged) else leaf.specs[0] for leaf in self._leaves)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)
        self.identify = partial(_identify_leaves, self._leaves)

    def __len__(self) -> int:
        return len(self._leaves[0])

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        raise SpecError("rows differ in length, so they do not fit into one array. Use batch(n, pad=0) or ragged=True.")

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        columns = [_gather_column(leaf, rows) for leaf in self._leaves]
        return [list(row) for row in zip(*columns, strict=True)]

    def gather_columns(self, rows: Rows, fill_values: Sequence[Any]) -> list[Array | Ragged]:
        return [
            _take_column(leaf, rows, fill_value) for leaf, fill_value in zip(self._leaves, fill_values, strict=True)
        ]

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        """Return some leaves of these rows. The rows must have one shape."""
        return [np.stack(_gather_column(self._leaves[leaf], rows)) for leaf in leaves]

    def memory(self) -> list[MemoryRegion]:
        arrays = [leaf.values if isinstance(leaf, Ragged) else leaf.arrays[0] for leaf in self._leaves]
        return [memory_region(array) for array in arrays]

    def row_lengths(self, leaf: int) -> Array | None:
        ragged = self._leaves[leaf]
        return np.diff(ragged.offsets) if isinstance(ragged, Ragged) else None


def _take_column(leaf: Ragged | ArraySource, rows: Rows, fill_value: Any) -> Array | Ragged:
    if not isinstance(leaf, Ragged):
        return leaf.gather_leaves([0], rows)[0]
    return leaf.take_rows(rows) if fill_value is None else leaf.take_padded(rows, fill_value)


def _gather_column(leaf: Ragged | ArraySource, rows: Rows) -> Sequence[Any]:
    """Return the rows of one leaf. Ragged rows are views, without a copy."""
    if isinstance(leaf, Ragged):
        starts, stops = leaf.offsets[:-1][rows].tolist(), leaf.offsets[1:][rows].tolist()
        return [leaf.values[start:stop] for start, stop in zip(starts, stops, strict=True)]
    out = leaf.specs[0].empty(row_count(rows))
    leaf.gather(rows, [out])
    return list(out)


def _check_ragged(ragged: Ragged, name: str) -> Ragged:
    """Return the leaf with NumPy arrays, or raise SpecError if its offsets are wrong."""
    values, offsets = np.asarray(ragged.values), np.asarray(ragged.offsets)
    if values.ndim == 0 or isinstance(ragged.values, np.ma.MaskedArray):
        raise SpecError(
            f"the values of {name!r} are {type(ragged.values).__name__} with the shape {values.shape}. Pass a plain "
            "array with the values of all rows, one row after the other."
        )
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise SpecError(
            f"the offsets of {name!r} are {offsets.dtype}{list(offsets.shape)}. Pass integers, one more than there are "
            "rows: where each row begins, then where the last row ends."
        )
    offsets = offsets.astype(np.int64, copy=False)
    decreasing = np.flatnonzero(offsets[1:] < offsets[:-1])
    if offsets[0] < 0 or len(decreasing):
        row = int(decreasing[0]) if len(decreasing) else 0
        raise SpecError(
            f"row {row} of {name!r} begins at offset {offsets[row]} and ends at {offsets[row + 1]}. Offsets must not "
            "be negative or decrease. Sort the rows by their offsets."
        )
    if offsets[-1] > len(values):
        raise SpecError(
            f"the last offset of {name!r} is {offsets[-1]}, but {name!r} has only {len(values)} values. Pass offsets "
            "of these values."
        )
    return Ragged(values.astype(values.dtype.newbyteorder("="), copy=False), offsets)


def _identify_leaves(leaves: Sequence[Ragged | ArraySource]) -> list[Any]:
    return [(leaf.values, leaf.offsets) if isinstance(leaf, Ragged) else leaf.arrays[0] for leaf in leaves]
