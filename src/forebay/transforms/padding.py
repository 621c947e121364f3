"""Functions that combine rows of different shapes: padded to the largest shape, or ragged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.core.spec import Array, ArraySpec
from forebay.errors import SpecError

__all__ = ["RaggedFields", "fill_values", "pad_rows", "stack_columns", "stack_rows"]


@dataclass(frozen=True, slots=True)
class RaggedFields:
    """The fields whose rows become `Ragged` in a batch."""

    names: frozenset[str] | None  # None: all fields that have a dimension

    def includes(self, name: str, ndim: int) -> bool:
        """Return whether the rows of a field with `ndim` dimensions become ragged."""
        return ndim > 0 and (self.names is None or name in self.names)


def pad_rows(
    rows: Sequence[Sequence[Any]], names: Sequence[str], pad: RaggedFields | Mapping[str, Any] | Any
) -> list[Array | Ragged]:
    """Return one array for each leaf, from rows that are lists of leaves.

    `pad` is the fill value, or the fill value of each named leaf. Without a fill value, all rows must have one shape.
    If `pad` is `RaggedFields`, its fields become `Ragged`, and the rows of all other fields must have one shape.
    """
    columns = zip(*rows, strict=True)
    return [_combine_rows(column, name, pad) for column, name in zip(columns, names, strict=True)]


def fill_values(
    specs: Sequence[ArraySpec], names: Sequence[str], pad: RaggedFields | Mapping[str, Any] | Any
) -> list[Any]:
    """Return the fill value of each leaf, or None. Raise SpecError if a dtype cannot store its value."""
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
    """Return columns of which only the `RaggedFields` are ragged. Raise SpecError if other rows differ in length."""
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
    """Return the rows of one leaf as one array, and pad rows of different shapes.

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
