"""A source that reads rows from any object with `__len__` and `__getitem__`.

Examples of such objects are a torch dataset, a list of rows and an HDF5 dataset.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Tree, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["ItemSource"]


class ItemSource(AbstractSource):
    """Reads rows with `__getitem__`, or several at once with `__getitems__` if it exists."""

    row_by_row = True

    def __init__(self, items: Any) -> None:
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            raise SpecError(f"from_source() got {type(items).__name__}. {_advice(items)}")
        self._items = items
        if len(items) == 0:
            raise SourceError("the source has no rows. Pass a source with at least one row.")
        try:
            first = items[0]
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(
                f"from_source() reads rows of {type(items).__name__} by number, and items[0] failed: {error!r}. "
                "To feed a tree of arrays, call from_arrays()."
            ) from error
        leaves, self.structure = flatten(first)
        arrays = [np.asarray(leaf) for leaf in leaves]
        self.specs = tuple(ArraySpec(array.shape, array.dtype) for array in arrays)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def __len__(self) -> int:
        return len(self._items)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        gathered = self.gather_rows(rows)
        for index, (target, name) in enumerate(zip(out, self.structure.paths, strict=True)):
            shape, dtype = target.shape[1:], target.dtype
            for position, leaves in enumerate(gathered):
                leaf = leaves[index]
                if leaf.shape != shape or leaf.dtype != dtype:
                    raise _mismatch_error(row_numbers(rows)[position], name, leaf, target)
                target[position] = leaf

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        """Return the rows as lists of leaves. Rows may differ in shape."""
        numbers = list(row_numbers(rows))
        items = self._fetch_items(numbers)
        return [self._leaves(number, item) for number, item in zip(numbers, items, strict=True)]

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        """Return some leaves of these rows. The other leaves may differ in shape."""
        out = [self.specs[leaf].empty(len(row_numbers(rows))) for leaf in leaves]
        for position, row in enumerate(self.gather_rows(rows)):
            for leaf, target in zip(leaves, out, strict=True):
                if row[leaf].shape != target.shape[1:] or row[leaf].dtype != target.dtype:
                    raise _mismatch_error(row_numbers(rows)[position], self.structure.paths[leaf], row[leaf], target)
                target[position] = row[leaf]
        return out

    def _leaves(self, number: int, item: Tree) -> list[Array]:
        try:
            return [np.asarray(leaf) for leaf in self.structure.flatten_like(item)]
        except SpecError as error:
            raise SpecError(
                f"row {number} differs from the first row: {error} Give all rows the same fields."
            ) from None

    def _fetch_items(self, numbers: list[int]) -> Iterable[Tree]:
        get_many = getattr(self._items, "__getitems__", None)  # an optional method of torch datasets
        if get_many is None:
            return [self._items[number] for number in numbers]
        items = list(get_many(numbers))
        if len(items) != len(numbers):
            raise SourceError(
                f"__getitems__ returned {len(items)} rows for {len(numbers)} row numbers. Return one row for each "
                "number."
            )
        return items


def _mismatch_error(number: int, name: str, leaf: Array, target: Array) -> SpecError:
    got, want = ArraySpec(leaf.shape, leaf.dtype), ArraySpec(target.shape[1:], target.dtype)
    return SpecError(
        f"row {number} has {got} in {name!r}, but the first row has {want}. Give all rows one shape and dtype. If "
        "only the shapes differ, you can also pad the rows with batch(..., pad=0)."
    )


def _advice(items: Any) -> str:
    """Return a sentence that says what to pass to `from_source` instead of `items`."""
    if hasattr(items, "__iter__") and hasattr(items, "dataset"):  # such as a DataLoader of PyTorch
        return "A DataLoader yields batches. Call from_batches(loader), or from_source(loader.dataset) for its rows."
    return "Pass an object with __len__ and __getitem__."
