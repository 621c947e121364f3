"""Sources whose leaves are SciPy CSR matrices or arrays.

`SparseSource` writes dense rows. `PaddedSparseSource` writes the values of each row and their column numbers. These
usually take fewer bytes than a dense row, and the device makes dense rows from them (`transforms/densify.py`). This
module does not import SciPy, but recognizes its matrices by the module of their class.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import SpecError
from forebay.sources.arrays import GatherFunction, as_array, can_change, common_length, make_gather, memory_region

__all__ = ["MAX_COLUMNS", "CsrMatrix", "PaddedSparseSource", "SparseSource", "has_sparse_leaf", "is_sparse"]

MAX_COLUMNS = 2**31 - 1  # of a matrix for `PaddedSparseSource`, which writes column numbers as int32
_PART_VALUES = 1 << 16  # values that are copied at a time, so that the temporary arrays stay below 2 MiB


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy."""
    return any(cls.__module__.startswith("scipy.sparse") for cls in type(value).__mro__)


def has_sparse_leaf(tree: Tree) -> bool:
    """Return whether a tree has a leaf that is a sparse matrix."""
    return any(True for _ in _find_matrices(tree, ()))


def _find_matrices(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield name and matrix for each sparse matrix in a tree.

    Do not use `flatten` for this, because it would treat a DOK matrix as a dict.
    """
    if is_sparse(tree):
        yield ".".join(path) or "array", tree
    elif isinstance(tree, Mapping):
        for key in tree:
            yield from _find_matrices(tree[key], (*path, str(key)))
    elif isinstance(tree, tuple) or (isinstance(tree, list) and any(hasattr(item, "shape") for item in tree)):
        for number, item in enumerate(tree):
            yield from _find_matrices(item, (*path, str(number)))


class SparseSource(AbstractSource):
    """The rows of CSR matrices and arrays of equal length. `gather` writes dense rows."""

    def __init__(self, tree: Tree) -> None:
        for name, matrix in _find_matrices(tree, ()):
            _require_csr(matrix, name)
        leaves, self.structure = flatten(tree)
        names = self.structure.paths
        self.leaves = [
            CsrMatrix(leaf, name) if is_sparse(leaf) else as_array(leaf, name)
            for leaf, name in zip(leaves, names, strict=True)
        ]
        self._length = common_length(self.leaves, self.structure)
        self.specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in self.leaves)
        for spec, name in zip(self.specs, names, strict=True):
            spec.check(name)
        self._gathers: list[GatherFunction] = [
            leaf.gather_dense if isinstance(leaf, CsrMatrix) else make_gather(leaf) for leaf in self.leaves
        ]
        self._arrays = [
            part for leaf in self.leaves for part in (leaf.parts if isinstance(leaf, CsrMatrix) else (leaf,))
        ]
        self.immutable = not any(map(can_change, self._arrays))
        self.identify = partial(_identify_leaves, self.leaves)
        self.read_decision = Decision("reads", "sparse matrix", "worker threads write dense rows to the slot")

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        out = [self.specs[leaf].empty(len(row_numbers(rows))) for leaf in leaves]
        for leaf, array in zip(leaves, out, strict=True):
            self._gathers[leaf](rows, array)
        return out

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]


def _identify_leaves(leaves: Sequence[Any]) -> list[Any]:
    return [(leaf.shape, leaf.parts) if isinstance(leaf, CsrMatrix) else leaf for leaf in leaves]


class PaddedSparseSource(AbstractSource):
    """The rows of a `SparseSource`, with two leaves for each matrix: values and column numbers.

    All rows of a matrix are padded to the number of values of its longest row: a shorter row repeats its last value and
    column number. With `counts`, a third leaf has the number of values of each row without padding.
    """

    def __init__(self, dense: SparseSource, *, counts: bool = False) -> None:
        self._has_counts = counts
        self._length, self.immutable, self.class_names = len(dense), dense.immutable, dense.class_names
        specs: list[ArraySpec] = []
        # For each leaf of `dense`: the index of its first array in `out`, and its CsrMatrix or GatherFunction.
        self._leaves: list[tuple[int, Any]] = []
        for leaf, spec in zip(dense.leaves, dense.specs, strict=True):
            self._leaves.append((len(specs), leaf if isinstance(leaf, CsrMatrix) else make_gather(leaf)))
            specs.extend(leaf.padded_specs if isinstance(leaf, CsrMatrix) else [spec])
            specs.extend([ArraySpec((), np.int32)] if isinstance(leaf, CsrMatrix) and counts else [])
        names = ("values", "columns", "counts")[: 3 if counts else 2]
        self.specs, self.structure = tuple(specs), _padded_structure(dense, names)
        self.read_decision = Decision("reads", "sparse matrix", "worker threads gather values and columns")

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for first, leaf in self._leaves:
            if isinstance(leaf, CsrMatrix):
                leaf.gather_padded(rows, out[first], out[first + 1])
                if self._has_counts:
                    leaf.gather_counts(rows, out[first + 2])
            else:
                leaf(rows, out[first])


class CsrMatrix:
    """A validated CSR matrix. It shares the memory of the user's matrix."""

    def __init__(self, matrix: Any, name: str) -> None:
        try:
            # A new matrix object that shares the arrays. It keeps them if the user later assigns to `matrix.data`.
            self._matrix = type(matrix)(matrix, copy=False)
            self._matrix.check_format(full_check=True)
        except (ValueError, IndexError) as error:
            raise SpecError(f"{name!r} is not a valid CSR matrix: {error}. Build the matrix again.") from error
        self.shape: tuple[int, int] = self._matrix.shape
        self.dtype: np.dtype[Any] = self._matrix.dtype
        self._starts, self._columns, self._values = self._matrix.indptr, self._matrix.indices, self._matrix.data
        # Whether a row may have several values for one column. Also True if the columns of a row are not sorted.
        self.has_duplicates = not self._matrix.has_canonical_format

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """The arrays of the CSR format: start of each row, column numbers, values."""
        return self._starts, self._columns, self._values

    @property
    def row_values(self) -> int:
        """The number of values in the longest row, at least 1."""
        return max(1, int(np.diff(self._starts).max(initial=0)))

    @property
    def padded_specs(self) -> list[ArraySpec]:
        """The specs of the values and the column numbers of a padded row."""
        return [ArraySpec((self.row_values,), self.dtype), ArraySpec((self.row_values,), np.int32)]

    def gather_dense(self, rows: Rows, out: Array) -> None:
        """Write dense rows. If a row has several values for one column, add them."""
        numbers = np.asarray(row_numbers(rows), np.intp)
        if not self.has_duplicates:
            # Fill `out` as bytes, because filling it as numbers (as SciPy's toarray does) takes three times as long.
            out.view(np.uint8).fill(0)
        for part in self._split(numbers):
            if self.has_duplicates:
                self._matrix[numbers[part]].toarray(out=out[part])
            else:
                self._scatter(numbers[part], out[part])

    def _scatter(self, numbers: Array, out: Array) -> None:
        """Write the values of some rows to an array of zeros."""
        first = self._starts[numbers].astype(np.intp)
        counts = self._starts[numbers + 1] - first
        offsets = np.arange(len(numbers)) * self.shape[1]  # index of the first element of each row in the flat `out`
        ends = np.cumsum(counts)
        positions = np.arange(int(ends[-1])) + np.repeat(first - (ends - counts), counts)
        out.reshape(-1)[np.repeat(offsets, counts) + self._columns[positions]] = self._values[positions]

    def gather_padded(self, rows: Rows, values: Array, columns: Array) -> None:
        """Write the values and column numbers of rows, padded to the width of `values`.

        A row must not have two values for one column, because the device would not add them.
        """
        numbers = np.asarray(row_numbers(rows), np.intp)
        count = values.shape[1]
        part_rows = max(1, _PART_VALUES // count)
        for start in range(0, len(numbers), part_rows):
            part = slice(start, start + part_rows)
            first, end = self._starts[numbers[part]], self._starts[numbers[part] + 1]
            # A shorter row repeats its last value. The device then writes this value several times to its column.
            positions = np.add(first[:, None], np.arange(count), dtype=np.intp)
            np.minimum(positions, end[:, None] - 1, out=positions)
            if len(self._values):  # `take` refuses an empty array
                self._values.take(positions, out=values[part], mode="clip")
                columns[part] = self._columns.take(positions, mode="clip")
            is_empty = first == end
            if is_empty.any():
                values[part][is_empty], columns[part][is_empty] = 0, 0

    def gather_counts(self, rows: Rows, out: Array) -> None:
        """Write the number of values of each row to `out`."""
        numbers = np.asarray(row_numbers(rows), np.intp)
        np.subtract(self._starts[numbers + 1], self._starts[numbers], out=out, casting="same_kind")

    def _split(self, numbers: Array) -> Iterator[slice]:
        """Yield slices of `numbers`. The rows of each slice have about `_PART_VALUES` values."""
        ends = np.cumsum(self._starts[numbers + 1] - self._starts[numbers], dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        cuts = np.searchsorted(ends, np.arange(_PART_VALUES, total, _PART_VALUES)) + 1
        boundaries = np.unique(np.concatenate(([0], np.minimum(cuts, len(numbers)), [len(numbers)])))
        for start, stop in zip(boundaries[:-1].tolist(), boundaries[1:].tolist(), strict=True):
            yield slice(start, stop)


def _require_csr(matrix: Any, name: str) -> None:
    if matrix.format != "csr" or matrix.ndim != 2:
        raise SpecError(
            f"{name!r} is a {type(matrix).__name__} of shape {matrix.shape}. Forebay reads sparse rows only from a "
            "matrix in CSR format. Pass a matrix with 2 axes, for example matrix.tocsr()."
        )


def _padded_structure(dense: SparseSource, names: Sequence[str]) -> Structure:
    """Return the structure of `dense` with a dict of these names for each matrix."""
    fields = [dict.fromkeys(names, 0) if isinstance(leaf, CsrMatrix) else 0 for leaf in dense.leaves]
    return flatten(dense.structure.unflatten(fields))[1]
