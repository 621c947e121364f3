"""Arrow columns as leaves: numbers, and lists of numbers that all have one length.

A column of another kind, such as strings or encoded images, becomes a leaf by a function of the user's that makes an
array of each of its values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.core.spec import Array, ArraySpec, Tree, as_specs
from forebay.errors import SourceError, SpecError
from forebay.sources.files.columns import check_chosen

__all__ = ["Column", "Decode", "choose_columns"]

Decode: TypeAlias = Mapping[str, Callable[[Any], Any]]  # by the name of a column: a value to an array


@dataclass(frozen=True, slots=True)
class Column:
    """One column as a leaf."""

    path: Path
    name: str
    spec: ArraySpec
    decode: Callable[[Any], Any] | None

    def values(self, column: Any, first_row: int) -> Array:
        """Some rows as a NumPy array, without a copy where Arrow has them in that form."""
        if self.decode is not None:
            return self._decoded(column, first_row)
        try:
            return self._numbers(column, first_row)
        except pa.ArrowException as error:
            raise SourceError(f"{self.name!r} in {self.path} is damaged, from row {first_row} on: {error}.") from error

    def _numbers(self, column: Any, first_row: int) -> Array:
        flat = column.storage if isinstance(column, pa.ExtensionArray) else column
        self._refuse_nulls(flat, first_row)
        depth = 0
        while _is_list(flat.type):
            self._check_lengths(flat, depth, first_row)
            flat, depth = flat.flatten(), depth + 1
            self._refuse_nulls(flat, first_row)
        array: Array = flat.to_numpy(zero_copy_only=not pa.types.is_boolean(flat.type))
        return array.reshape(self.spec.batch_shape(len(column)))

    def _refuse_nulls(self, values: Any, first_row: int) -> None:
        if values.null_count:
            raise SourceError(
                f"{self.name!r} in {self.path} has {values.null_count} empty values (null) in the rows from "
                f"{first_row} on, and an array has no place for them: fill them, or leave the column out."
            )

    def _check_lengths(self, lists: Any, depth: int, first_row: int) -> None:
        if pa.types.is_fixed_size_list(lists.type) or len(lists) == 0:
            return
        lists.validate(full=True)  # offsets of a damaged file would lead anywhere
        found, wanted = pc.min_max(pc.list_value_length(lists)).as_py(), self.spec.shape[depth]
        if (found["min"], found["max"]) != (wanted, wanted):
            raise SourceError(
                f"{self.name!r} in {self.path} has lists of {found['min']} to {found['max']} values in the rows from "
                f"{first_row} on, but spec= says {self.spec}: make them of one length."
            )

    def _decoded(self, column: Any, first_row: int) -> Array:
        assert self.decode is not None
        out = self.spec.empty(len(column))
        for place, value in enumerate(column):
            made = np.asarray(self.decode(value.as_py()))
            if (made.shape, made.dtype) != (self.spec.shape, self.spec.dtype):
                raise SpecError(
                    f"decode[{self.name!r}] makes {ArraySpec(made.shape, made.dtype)} of row {first_row + place} of "
                    f"{self.path}, but {self.spec} of the first: rows must be alike."
                )
            out[place] = made
        return out


def choose_columns(
    path: Path,
    schema: Any,
    *,
    columns: Sequence[str] | None,
    spec: Tree | None,
    decode: Decode | None,
    first_value: Callable[[str], Any],
) -> list[Column]:
    """The columns that are asked for, each with what a row of it is; `first_value` reads one for `decode`."""
    specs, structure = as_specs(spec) if spec is not None else ((), None)
    wanted = dict(zip(structure.paths if structure else (), specs, strict=True))
    chosen = list(columns if columns is not None else wanted or schema.names)
    decode = decode or {}
    check_chosen(path, "column", [*chosen, *decode], schema.names)
    return [_column(path, schema.field(name), wanted.get(name), decode.get(name), first_value) for name in chosen]


def _column(
    path: Path,
    field: Any,
    wanted: ArraySpec | None,
    decode: Callable[[Any], Any] | None,
    first_value: Callable[[str], Any],
) -> Column:
    if decode is None:
        return Column(path, field.name, _spec_of(path, field, wanted), None)
    if wanted is not None:
        return Column(path, field.name, wanted, decode)
    made = np.asarray(decode(first_value(field.name)))
    return Column(path, field.name, ArraySpec(made.shape, made.dtype), decode)


def _spec_of(path: Path, field: Any, wanted: ArraySpec | None) -> ArraySpec:
    shape, kind = _shape_of(field.type)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise SourceError(
            f"{field.name!r} in {path} holds {field.type}, which is no array of numbers: choose others with "
            f"columns=[...], or say how to make an array of each value with decode={{{field.name!r}: function}}."
        )
    if None not in shape:
        return ArraySpec(shape, kind.to_pandas_dtype())
    if wanted is None or wanted.ragged or len(wanted.shape) != len(shape):
        raise SourceError(
            f"{field.name!r} in {path} holds lists of any length ({field.type}): if all have one, say so with spec=, "
            f"for example spec={{{field.name!r}: forebay.ArraySpec((128,), {str(kind)!r})}}."
        )
    return ArraySpec(wanted.shape, kind.to_pandas_dtype())


def _shape_of(kind: Any) -> tuple[list[int | None], Any]:
    """What a row is, and of which type; None for a length that the type does not tell."""
    if isinstance(kind, pa.FixedShapeTensorType) and list(kind.permutation or []) == sorted(kind.permutation or []):
        return list(kind.shape), kind.value_type
    shape: list[int | None] = []
    while _is_list(kind):
        shape.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
        kind = kind.value_type
    return shape, kind


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))
