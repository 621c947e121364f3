"""Arrow columns as leaves: numbers, and lists of numbers of one length.

A function of the user converts each value of other columns, such as strings or encoded images, to an array.
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
from forebay.sources.files.columns import validate_names

__all__ = ["ArrowColumn", "ColumnDecoders", "select_columns"]

ColumnDecoders: TypeAlias = Mapping[str, Callable[[Any], Any]]  # column name -> function from a value to an array


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """One column as a leaf."""

    path: Path
    name: str
    spec: ArraySpec
    decode: Callable[[Any], Any] | None

    def to_numpy(self, column: Any, first_row: int) -> Array:
        """Convert rows to a NumPy array, without a copy if possible."""
        if self.decode is not None:
            return self._decode_values(self.decode, column, first_row)
        try:
            return self._flatten_lists(column, first_row)
        except pa.ArrowException as error:
            raise SourceError(
                f"{self.name!r} in {self.path} is damaged from row {first_row} on: {error}. "
                "Write or download the file again."
            ) from error

    def _flatten_lists(self, column: Any, first_row: int) -> Array:
        flat = column.storage if isinstance(column, pa.ExtensionArray) else column
        self._refuse_nulls(flat, first_row)
        depth = 0
        while _is_list(flat.type):
            self._validate_lengths(flat, depth, first_row)
            flat, depth = flat.flatten(), depth + 1
            self._refuse_nulls(flat, first_row)
        array: Array = flat.to_numpy(zero_copy_only=not pa.types.is_boolean(flat.type))
        return array.reshape(self.spec.batch_shape(len(column)))

    def _refuse_nulls(self, values: Any, first_row: int) -> None:
        if values.null_count:
            raise SourceError(
                f"{self.name!r} in {self.path} has {values.null_count} null values in the rows from {first_row} on. "
                "Arrays cannot hold null. Fill the values, or omit the column."
            )

    def _validate_lengths(self, lists: Any, depth: int, first_row: int) -> None:
        if pa.types.is_fixed_size_list(lists.type) or len(lists) == 0:
            return
        lists.validate(full=True)  # Arrow does not check the offsets of a damaged file otherwise
        found, wanted = pc.min_max(pc.list_value_length(lists)).as_py(), self.spec.shape[depth]
        if (found["min"], found["max"]) != (wanted, wanted):
            raise SourceError(
                f"{self.name!r} in {self.path} has lists of {found['min']} to {found['max']} values in the rows from "
                f"{first_row} on, but spec= says {self.spec}. Give all lists one length."
            )

    def _decode_values(self, decode: Callable[[Any], Any], column: Any, first_row: int) -> Array:
        out = self.spec.empty(len(column))
        for position, value in enumerate(column):
            array = np.asarray(decode(value.as_py()))
            if (array.shape, array.dtype) != (self.spec.shape, self.spec.dtype):
                raise SpecError(
                    f"decode[{self.name!r}] returns {ArraySpec(array.shape, array.dtype)} for row "
                    f"{first_row + position} of {self.path}, but {self.spec} for the first row. "
                    "Return one shape and dtype."
                )
            out[position] = array
        return out


def select_columns(
    path: Path,
    schema: Any,
    *,
    columns: Sequence[str] | None,
    spec: Tree | None,
    decode: ColumnDecoders | None,
    first_value: Callable[[str], Any],
) -> list[ArrowColumn]:
    """Return the requested columns with their specs.

    `first_value` reads one value, to infer a spec for `decode`.
    """
    specs, structure = as_specs(spec) if spec is not None else ((), None)
    wanted = dict(zip(structure.paths if structure else (), specs, strict=True))
    names = list(columns if columns is not None else wanted or schema.names)
    decode = decode or {}
    validate_names(path, "column", [*names, *decode], schema.names)
    return [_make_column(path, schema.field(name), wanted.get(name), decode.get(name), first_value) for name in names]


def _make_column(
    path: Path,
    field: Any,
    wanted: ArraySpec | None,
    decode: Callable[[Any], Any] | None,
    first_value: Callable[[str], Any],
) -> ArrowColumn:
    if decode is None:
        return ArrowColumn(path, field.name, _spec_of(path, field, wanted), None)
    if wanted is not None:
        return ArrowColumn(path, field.name, wanted, decode)
    array = np.asarray(decode(first_value(field.name)))
    return ArrowColumn(path, field.name, ArraySpec(array.shape, array.dtype), decode)


def _spec_of(path: Path, field: Any, wanted: ArraySpec | None) -> ArraySpec:
    shape, kind = _shape_of(field.type)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise SourceError(
            f"{field.name!r} in {path} holds {field.type}, which is not an array of numbers. Choose other columns with "
            f"columns=[...], or convert each value to an array with decode={{{field.name!r}: function}}."
        )
    if None not in shape:
        return ArraySpec(shape, kind.to_pandas_dtype())
    if wanted is None or wanted.ragged or len(wanted.shape) != len(shape):
        raise SourceError(
            f"{field.name!r} in {path} holds lists of any length ({field.type}). If all have one length, describe it "
            f"with spec=, for example spec={{{field.name!r}: forebay.ArraySpec((128,), {str(kind)!r})}}."
        )
    return ArraySpec(wanted.shape, kind.to_pandas_dtype())


def _shape_of(kind: Any) -> tuple[list[int | None], Any]:
    """Return the shape of a row and its value type.

    A length is None if the type does not define it.
    """
    if isinstance(kind, pa.FixedShapeTensorType) and list(kind.permutation or []) == sorted(kind.permutation or []):
        return list(kind.shape), kind.value_type
    shape: list[int | None] = []
    while _is_list(kind):
        shape.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
        kind = kind.value_type
    return shape, kind


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))
