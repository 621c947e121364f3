"""Arrow columns as leaves: numbers, and lists of numbers of one length.

For other columns, such as strings or encoded images, the user passes a function that converts a value to an array.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.core.spec import Array, ArraySpec, Tree, as_specs
from forebay.errors import SourceError, SpecError
from forebay.sources.files.chunked import MIN_CACHED_CHUNKS
from forebay.sources.files.columns import validate_names
from forebay.sources.files.held_budget import HeldBudget, validate_claim

__all__ = [
    "ArrowColumn",
    "ColumnDecoders",
    "ColumnFile",
    "make_boundaries",
    "read_value",
    "select_columns",
    "validate_chunks",
    "validate_row_count",
]

_MAX_ROWS = 2**62  # rows of one file; safely below the largest int64

ColumnDecoders: TypeAlias = Mapping[str, Callable[[Any], Any]]  # column name -> function from a value to an array


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """How the values of one column become a leaf."""

    path: Path  # of the file, for error messages
    name: str
    spec: ArraySpec
    decode: Callable[[Any], Any] | None  # converts a value to an array

    def to_numpy(self, column: Any, first_row: int) -> Array:
        """Convert consecutive rows to a NumPy array, without a copy if possible.

        `first_row` is the number of the first row, for error messages.
        """
        if self.decode is not None:
            return self._decode_values(self.decode, column, first_row)
        try:
            return self._flatten_lists(column, first_row)
        except SourceError:
            raise
        except (pa.ArrowException, ValueError) as error:
            raise _damage_error(self.path, self.name, first_row, error) from error

    def _flatten_lists(self, column: Any, first_row: int) -> Array:
        values = column.storage if isinstance(column, pa.ExtensionArray) else column
        self._validate_no_nulls(values, first_row)
        depth = 0
        while _is_list(values.type):
            self._validate_lengths(values, depth, first_row)
            values, depth = values.flatten(), depth + 1
            self._validate_no_nulls(values, first_row)
        array: Array = values.to_numpy(zero_copy_only=not pa.types.is_boolean(values.type))
        return array.reshape(self.spec.batch_shape(len(column)))

    def _validate_no_nulls(self, values: Any, first_row: int) -> None:
        if values.null_count:
            raise SourceError(
                f"{self.name!r} in {self.path} has {values.null_count} null values in the rows from {first_row} on. "
                "Arrays cannot hold null. Fill the values, or omit the column."
            )

    def _validate_lengths(self, lists: Any, depth: int, first_row: int) -> None:
        if pa.types.is_fixed_size_list(lists.type) or len(lists) == 0:
            return
        lists.validate(full=True)  # otherwise Arrow does not check the offsets, which are wrong in a damaged file
        lengths, expected = pc.min_max(pc.list_value_length(lists)).as_py(), self.spec.shape[depth]
        if (lengths["min"], lengths["max"]) != (expected, expected):
            raise SourceError(
                f"{self.name!r} in {self.path} has lists of {lengths['min']} to {lengths['max']} values in the rows "
                f"from {first_row} on, but spec= says {self.spec}. Correct spec=, or write lists of its length."
            )

    def _decode_values(self, decode: Callable[[Any], Any], column: Any, first_row: int) -> Array:
        _validate_values(self.path, self.name, column, first_row)
        out = self.spec.empty(len(column))
        for position, scalar in enumerate(column):
            try:
                value = scalar.as_py()
            except Exception as error:  # the conversion raises anything from UnicodeDecodeError to KeyError
                raise _damage_error(self.path, self.name, first_row + position, error) from error
            array = np.asarray(decode(value))
            if (array.shape, array.dtype) != (self.spec.shape, self.spec.dtype):
                raise SpecError(
                    f"decode[{self.name!r}] returns {ArraySpec(array.shape, array.dtype)} for row "
                    f"{first_row + position} of {self.path}, but {self.spec} is expected. Return the shape and dtype "
                    "of spec=, or of the first row, for every row."
                )
            out[position] = array
        return out


def read_value(path: Path, name: str, column: Any) -> Any:
    """Return the first value of a column, for a decode function."""
    _validate_values(path, name, column, 0)
    try:
        return column[0].as_py()
    except Exception as error:  # see `_decode_values`
        raise _damage_error(path, name, 0, error) from error


def _validate_values(path: Path, name: str, column: Any, first_row: int) -> None:
    """Raise SourceError if offsets or indices in a column are wrong.

    Reading a value at a wrong offset could crash the process.
    """
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        raise _damage_error(path, name, first_row, error) from error


def _damage_error(path: Path, name: str, first_row: int, error: Exception) -> SourceError:
    return SourceError(
        f"{name!r} in {path} is damaged from row {first_row} on: {error}. Write or download the file again."
    )


def make_boundaries(path: Path, row_counts: Sequence[int]) -> Array:
    """Return the first row of each row group or record batch, then the row count.

    `row_counts` has the number of rows of each. Raise SourceError if these numbers are impossible.
    """
    if min(row_counts, default=0) < 0 or sum(row_counts) >= _MAX_ROWS:
        raise SourceError(
            f"{path} is damaged: it claims to have {sum(row_counts)} rows, and {min(row_counts)} in one row group "
            "or record batch. Write or download it again."
        )
    return np.concatenate([[0], np.cumsum(row_counts, dtype=np.int64)])


def validate_row_count(path: Path, part: str, column: Any, boundaries: Array) -> None:
    """Raise SourceError if `column` has another number of rows than `boundaries` say.

    `part` is the row group or record batch that was read. `boundaries` are its first row and the row after its last.
    """
    expected_rows = int(boundaries[1] - boundaries[0])
    if len(column) != expected_rows:
        raise SourceError(
            f"{path} is damaged: {part} has {len(column)} rows instead of {expected_rows}. Write or download it again."
        )


def validate_chunks(columns: Sequence[ArrowColumn], boundaries: Array, budget: HeldBudget) -> None:
    """Raise BudgetError if the smallest cache of the columns exceeds the budget.

    This cache holds `MIN_CACHED_CHUNKS` row groups or record batches of each column. A file of a few bytes can claim
    any number of rows, because compressed equal values take almost no space.
    """
    rows = int(np.diff(boundaries).max(initial=0))
    row_nbytes = sum(column.spec.nbytes for column in columns)
    for column in columns[:1]:
        claim = f"{column.path} claims {rows} rows of {row_nbytes} bytes in one row group or record batch"
        budget.validate(claim, min(len(boundaries) - 1, MIN_CACHED_CHUNKS) * rows * row_nbytes)


class ColumnFile(Protocol):
    """An open Parquet or Arrow file."""

    @property
    def schema(self) -> Any: ...
    @property
    def boundaries(self) -> Array: ...  # first row of each row group or record batch, then the number of rows
    def read_first_value(self, name: str) -> Any: ...  # the first value of a column
    def read_column(self, name: str, part: int) -> Any: ...  # the values of a row group or record batch


def select_columns(
    path: Path,
    file: ColumnFile,
    *,
    columns: Sequence[str] | None,
    spec: Tree | None,
    decode: ColumnDecoders | None,
) -> list[ArrowColumn]:
    """Return the requested columns. Raise an error if arrays cannot hold their rows.

    If a column has a decode function and no spec, the decoded first value determines the spec.
    """
    schema = file.schema
    specs, structure = as_specs(spec) if spec is not None else ((), None)
    user_specs = dict(zip(structure.paths if structure else (), specs, strict=True))
    names = list(columns if columns is not None else user_specs or schema.names)
    decode = decode or {}
    validate_names(path, "column", [*names, *decode], schema.names)
    duplicates = [name for name in names if schema.names.count(name) > 1]
    if duplicates:
        raise SourceError(
            f"{path} has two columns named {duplicates[0]!r}. Write it with different names, or choose other columns "
            "with columns=[...]."
        )
    selected = [
        _make_column(path, schema.field(name), user_specs.get(name), decode.get(name), file.read_first_value)
        for name in names
    ]
    for column in selected:
        claim = column.spec.batch_shape(int(file.boundaries[-1]))
        validate_claim(f"{column.name!r} in {path}", claim, column.spec.dtype)
    return selected


def _make_column(
    path: Path,
    field: Any,
    user_spec: ArraySpec | None,
    decode: Callable[[Any], Any] | None,
    read_first_value: Callable[[str], Any],
) -> ArrowColumn:
    if decode is None:
        return ArrowColumn(path, field.name, _infer_spec(path, field, user_spec), None)
    if user_spec is not None:
        return ArrowColumn(path, field.name, user_spec, decode)
    array = np.asarray(decode(read_first_value(field.name)))
    return ArrowColumn(path, field.name, ArraySpec(array.shape, array.dtype), decode)


def _infer_spec(path: Path, field: Any, user_spec: ArraySpec | None) -> ArraySpec:
    shape, value_type = _infer_shape(field.type)
    if not (pa.types.is_integer(value_type) or pa.types.is_floating(value_type) or pa.types.is_boolean(value_type)):
        raise SourceError(
            f"{field.name!r} in {path} holds {field.type}, which is not an array of numbers. Choose other columns with "
            f"columns=[...], or convert each value to an array with decode={{{field.name!r}: function}}."
        )
    if None not in shape:
        return ArraySpec(shape, value_type.to_pandas_dtype())
    if user_spec is None or user_spec.ragged or len(user_spec.shape) != len(shape):
        raise SourceError(
            f"{field.name!r} in {path} holds lists of any length ({field.type}). If all lists have one length, "
            "describe the shape of a row with spec=, for example "
            f"spec={{{field.name!r}: forebay.ArraySpec((128,), {str(value_type)!r})}}. If their lengths differ, read "
            "the column with pyarrow and pass it to from_ragged()."
        )
    return ArraySpec(user_spec.shape, value_type.to_pandas_dtype())


def _infer_shape(arrow_type: Any) -> tuple[list[int | None], Any]:
    """Return the shape of a row and the type of its values.

    A length is None if the Arrow type does not define it.
    """
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        permutation = list(arrow_type.permutation or [])
        if permutation == sorted(permutation):  # the axes are stored in the order of the shape
            return list(arrow_type.shape), arrow_type.value_type
    shape: list[int | None] = []
    while _is_list(arrow_type):
        shape.append(arrow_type.list_size if pa.types.is_fixed_size_list(arrow_type) else None)
        arrow_type = arrow_type.value_type
    return shape, arrow_type


def _is_list(arrow_type: Any) -> bool:
    return bool(
        pa.types.is_fixed_size_list(arrow_type) or pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    )
