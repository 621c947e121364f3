"""Functions that combine rows of different shapes into padded or ragged arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import SpecError

__all__ = [
    "RaggedFields",
    "RowList",
    "Unpadded",
    "apply_to_each_row",
    "fill_values",
    "pad_rows",
    "stack_columns",
    "stack_rows",
]


@dataclass(frozen=True, slots=True)
class RaggedFields:
    """The fields whose rows become `Ragged` in a batch."""

    names: frozenset[str] | None  # None: all fields that have a dimension

    def includes(self, name: str, ndim: int) -> bool:
        """Return whether the rows of a field with `ndim` dimensions become ragged."""
        return ndim > 0 and (self.names is None or name in self.names)


@dataclass(frozen=True, slots=True)
class Unpadded:
    """Rows keep their own shapes, because a map that comes later receives single rows."""


class RowList(list[Any]):
    """Copies of the rows of one leaf, which may differ in shape.

    A map may change the copies.
    """

    @classmethod
    def of(cls, column: Sequence[Any]) -> "RowList":
        return cls(np.array(row)[()] for row in column)  # `[()]` makes a NumPy scalar of an array without dimensions

    def copy(self) -> "RowList":
        return RowList.of(self)

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self)

    @property
    def row_spec(self) -> ArraySpec:
        """The spec of the rows, in which the length of each dimension may vary."""
        return ArraySpec((None,) * self[0].ndim, self[0].dtype)


def apply_to_each_row(
    apply: Callable[[list[Any]], tuple[list[Any], Structure]], leaves: Sequence[RowList]
) -> tuple[list[Any], Structure]:
    """Apply a transform of batches to each row, as a batch of one row."""
    results = [apply([np.asarray(leaf)[None] for leaf in row]) for row in zip(*leaves, strict=True)]
    columns = zip(*([leaf[0] for leaf in output] for output, _ in results), strict=True)
    return [RowList.of(column) for column in columns], results[0][1]


def pad_rows(
    rows: Sequence[Sequence[Any]], names: Sequence[str], pad: Unpadded | RaggedFields | Mapping[str, Any] | Any
) -> list[Any]:
    """Return one array for each leaf, from rows that are lists of leaves.

    `pad` is the fill value, or the fill value of each named leaf. Without a fill value, all rows must have one shape.
    If `pad` is `RaggedFields`, its fields become `Ragged`, and the rows of all other fields must have one shape. If it
    is `Unpadded`, each leaf becomes a `RowList`.
    """
    columns = zip(*rows, strict=True)
    if isinstance(pad, Unpadded):
        return [RowList.of(column) for column in columns]
    return [_combine_rows(column, name, pad) for column, name in zip(columns, names, strict=True)]


def fill_values(
    specs: Sequence[ArraySpec], names: Sequence[str], pad: RaggedFields | Mapping[str, Any] | Any
) -> list[Any]:
    """Return the fill value of each leaf; None for a leaf without one.

    Raise SpecError if the dtype of a ragged leaf cannot store its fill value.
    """
    if isinstance(pad, RaggedFields):
        return [None] * len(names)
    values = [pad.get(name) if isinstance(pad, Mapping) else pad for name in names]
    for value, spec, name in zip(values, specs, names, strict=True):
        if value is not None and spec.ragged:
            _validate_pad_value(value, spec.dtype, name)
    return values


def stack_columns(
    columns: Sequence[Array | Ragged], names: Sequence[str], pad: RaggedFields | Mapping[str, Any] | Any
) -> list[Array | Ragged]:
    """Return the columns, in which only the fields that `pad` names stay ragged.

    Stack the rows of all other ragged columns. Raise SpecError if these rows differ in length.
    """
    return [
        stack_rows(list(column), name, None)
        if isinstance(column, Ragged) and not (isinstance(pad, RaggedFields) and pad.includes(name, column.ndim - 1))
        else column
        for column, name in zip(columns, names, strict=True)
    ]


def _combine_rows(column: Sequence[Any], name: str, pad: RaggedFields | Mapping[str, Any] | Any) -> Array | Ragged:
    if not isinstance(pad, RaggedFields):
        return stack_rows(column, name, pad)
    if not pad.includes(name, np.ndim(column[0])):
        return stack_rows(column, name, None)
    try:
        return Ragged.of_rows(column)
    except SpecError as error:
        raise SpecError(f"{name!r}: {error} Name the ragged fields in batch(ragged=...), or use pad=.") from None


def stack_rows(column: Sequence[Any], name: str, pad: Mapping[str, Any] | Any | None) -> Array:
    """Return the rows of one leaf as one array, padded if they have different shapes.

    Raise SpecError if the rows need padding but have no fill value, or differ in their number of dimensions.
    """
    arrays = [np.asarray(leaf) for leaf in column]
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        return np.stack(arrays)
    value = pad.get(name) if isinstance(pad, Mapping) else pad
    if value is None or len({len(shape) for shape in shapes}) > 1:
        raise SpecError(
            f"rows of {name!r} have different shapes: {sorted(shapes)[:3]}. Use one shape, or pass batch(..., pad=0) "
            "if all rows have the same number of dimensions, or name the field in batch(..., ragged=...)."
        )
    dtype = np.result_type(*{array.dtype for array in arrays})
    _validate_pad_value(value, dtype, name)
    padded = np.full((len(arrays), *np.max(sorted(shapes), axis=0)), value, dtype)
    for target, array in zip(padded, arrays, strict=True):
        target[tuple(slice(length) for length in array.shape)] = array
    return padded


def _validate_pad_value(value: Any, dtype: np.dtype[Any], name: str) -> None:
    """Raise SpecError if the dtype cannot store the value, such as NaN in an integer."""
    try:
        stored = np.array(value, dtype)
    except (OverflowError, TypeError, ValueError):
        stored = None
    if stored is None or not (stored == value or (value != value and stored != stored)):  # NaN differs from itself
        raise SpecError(f"{name!r} is {dtype} and cannot store pad={value!r}. Choose another value.")
