"""Rows of different shape as one array: as long as the longest of the batch, the rest filled with a value."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["pad_rows", "stack_rows"]


def pad_rows(rows: Sequence[Sequence[Any]], names: Sequence[str], pad: Mapping[str, Any] | Any) -> list[Array]:
    """Rows, each a list of leaves, as one padded array a leaf."""
    columns = zip(*rows, strict=True)
    return [stack_rows(column, name, pad) for column, name in zip(columns, names, strict=True)]


def stack_rows(column: Sequence[Any], name: str, pad: Mapping[str, Any] | Any | None) -> Array:
    """One leaf's rows as one array; where their shapes differ, padded with the field's value."""
    arrays = [np.asarray(leaf) for leaf in column]
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        return np.stack(arrays)
    value = pad.get(name) if isinstance(pad, Mapping) else pad
    if value is None or len({len(shape) for shape in shapes}) > 1:
        raise SpecError(
            f"rows differ in shape in {name!r}: {sorted(shapes)[:3]}. Make them alike, or pass batch(..., pad=0) "
            "(all with the same number of dimensions)."
        )
    dtype = np.result_type(*{array.dtype for array in arrays})
    _check_value(value, dtype, name)
    padded = np.full((len(arrays), *np.max(sorted(shapes), axis=0)), value, dtype)
    for target, array in zip(padded, arrays, strict=True):
        target[tuple(slice(length) for length in array.shape)] = array
    return padded


def _check_value(value: Any, dtype: np.dtype[Any], name: str) -> None:
    """Refuse what the rows cannot hold: NaN among whole numbers, -1 among unsigned ones."""
    try:
        held = np.array(value, dtype)
    except (OverflowError, TypeError, ValueError):
        held = None
    if held is None or not (held == value or (value != value and held != held)):
        raise SpecError(f"pad={value!r} cannot be held by {name!r}, which is {dtype}: choose another value.")
