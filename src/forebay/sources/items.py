"""Any object with `__len__` and `__getitem__`: a torch-style dataset, a list of rows, an HDF5-like handle."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Tree, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["ItemSource"]


class ItemSource(AbstractSource):
    """Rows asked for one by one, or by whole batches where the object has `__getitems__`."""

    def __init__(self, items: Any) -> None:
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            raise SpecError(f"from_source() needs an object with __len__ and __getitem__, got {type(items).__name__}.")
        self._items = items
        if len(items) == 0:
            raise SourceError("the source has no rows: there is nothing to feed.")
        try:
            first = items[0]
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(
                f"from_source() asks a {type(items).__name__} for its rows by number, and items[0] failed: {error!r}. "
                "Trees of arrays go into from_arrays()."
            ) from error
        leaves, self.structure = flatten(first)
        arrays = [np.asarray(leaf) for leaf in leaves]
        self.specs = tuple(ArraySpec(array.shape, array.dtype) for array in arrays)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def __len__(self) -> int:
        return len(self._items)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for place, leaves in enumerate(self.gather_rows(rows)):
            for target, leaf, name in zip(out, leaves, self.structure.paths, strict=True):
                if leaf.shape != target.shape[1:] or leaf.dtype != target.dtype:
                    self._refuse(_numbers(rows)[place], name, leaf, target)
                target[place] = leaf

    def gather_rows(self, rows: Rows) -> list[list[Array]]:
        """The rows as lists of leaves, whatever their shapes."""
        return [
            [np.asarray(leaf) for leaf in self.structure.flatten_like(item)] for item in self._fetch(_numbers(rows))
        ]

    def memory(self) -> list[MemoryRegion]:
        return []

    def close(self) -> None:
        """The object is the user's: nothing to give back."""

    def _fetch(self, numbers: list[int]) -> Iterable[Tree]:
        many = getattr(self._items, "__getitems__", None)
        if many is None:
            return [self._items[number] for number in numbers]
        found = list(many(numbers))
        if len(found) != len(numbers):
            raise SourceError(f"__getitems__ returned {len(found)} rows for {len(numbers)} row numbers.")
        return found

    def _refuse(self, number: int, name: str, leaf: Array, target: Array) -> None:
        got, want = ArraySpec(leaf.shape, leaf.dtype), ArraySpec(target.shape[1:], target.dtype)
        raise SpecError(
            f"row {number} gives {got} in {name!r}, the first row {want}: make rows alike, or batch(..., pad=0)."
        )


def _numbers(rows: Rows) -> list[int]:
    return list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()
