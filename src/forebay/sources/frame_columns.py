"""Columns of pandas, polars and Arrow frames as arrays.

Columns are copied only if NumPy cannot use their memory in place. This module identifies the library of an object by
the name of its class. So Forebay does not import a library that the user has not imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["NUMBER_KINDS", "FrameColumn", "convert_column", "find_class", "library_of_column", "library_of_frame"]

_FRAMES = {"pandas": ("DataFrame",), "polars": ("DataFrame",), "pyarrow": ("Table", "RecordBatch")}
_COLUMNS = {"pandas": ("Series",), "polars": ("Series",)}
NUMBER_KINDS = "biufcmM"  # of NumPy dtypes that a column may have: numbers, bool, datetimes and durations
# The types of polars that NumPy arrays can hold. Int128, Decimal and Time are missing: NumPy has no such types.
_POLARS_TYPES = {f"{kind}{bits}" for kind in ("Int", "UInt", "Float") for bits in (8, 16, 32, 64)}
_POLARS_TYPES |= {"Boolean", "Date", "Datetime", "Duration"}


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A frame's column as an array, with a value or a vector per row."""

    name: str
    array: Array
    is_copy: bool = False  # whether Forebay had to copy the values
    categories: tuple[str, ...] = ()  # the names of the codes 0, 1, ... of a categorical column


def library_of_frame(value: Any) -> str | None:
    """Return the library of a frame: "pandas", "polars" or "pyarrow". Return None for other values.

    Raise SpecError for a LazyFrame, because it has no rows in memory.
    """
    if find_class(value, {"polars": ("LazyFrame",)}):
        raise SpecError("a LazyFrame has no rows in memory. Pass frame.collect().")
    return find_class(value, _FRAMES)


def library_of_column(value: Any) -> str | None:
    """Return "pandas" or "polars" if the value is a single column (a series), else None."""
    return find_class(value, _COLUMNS)


def find_class(value: Any, names: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the library that defines the value's class, if `names` lists this class, else None.

    `names` maps a library to names of classes. Subclasses count too.
    """
    for cls in type(value).__mro__:
        library = cls.__module__.partition(".")[0]
        if cls.__name__ in names.get(library, ()):
            return library
    return None


def convert_column(library: str, name: str, column: Any) -> FrameColumn:
    """Convert a column to an array, or raise SpecError if its values are not numbers."""
    converters: dict[str, Callable[[str, Any], FrameColumn]] = {
        "pandas": _convert_pandas,
        "polars": _convert_polars,
        "pyarrow": _convert_arrow,
    }
    return converters[library](name, column)


# pandas


def _convert_pandas(name: str, series: Any) -> FrameColumn:
    dtype = series.dtype
    kinds = {cls.__name__ for cls in type(dtype).__mro__}
    if isinstance(dtype, np.dtype):
        if dtype.kind not in NUMBER_KINDS:
            raise _type_error(name, dtype, f"frame[{name!r}].astype('category') if it holds texts, else .astype(float)")
        return FrameColumn(name, series.to_numpy())
    if "CategoricalDtype" in kinds:
        codes = series.array.codes
        _refuse_nulls(name, int(np.count_nonzero(codes == -1)), "add_categories() and fillna()")
        return FrameColumn(name, codes, categories=tuple(map(str, dtype.categories)))
    if "DatetimeTZDtype" in kinds:
        return FrameColumn(name, series.dt.tz_convert(None).to_numpy())
    if "ArrowDtype" in kinds:
        return _convert_arrow(name, series.array.__arrow_array__())
    if "BaseMaskedDtype" in kinds:  # nullable types of pandas, such as Int64 and boolean
        _refuse_nulls(name, int(series.isna().sum()), f"frame[{name!r}].fillna(0)")
        return FrameColumn(name, series.array.to_numpy(dtype=dtype.numpy_dtype, copy=False))
    advice = "sparse.to_dense()" if "SparseDtype" in kinds else "astype('category') if it holds texts"
    raise _type_error(name, dtype, f"frame[{name!r}].{advice}")


# polars


def _convert_polars(name: str, series: Any) -> FrameColumn:
    dtype = series.dtype
    kind = dtype.base_type().__name__
    _refuse_nulls(name, series.null_count(), f"frame.with_columns(pl.col({name!r}).fill_null(0))")
    if kind in ("Categorical", "Enum"):
        return _convert_polars_categories(name, series)
    values = series
    while values.dtype.base_type().__name__ == "Array" and values.dtype.size:  # a vector may consist of vectors
        values = values.explode()
        _refuse_nulls(name, values.null_count(), "arr.eval(pl.element().fill_null(0))")
    if kind != "Array" and kind not in _POLARS_TYPES:
        raise _type_error(name, dtype, f"frame.with_columns(pl.col({name!r}).{_polars_advice(kind)})")
    array = series.to_numpy()
    if array.dtype.kind not in NUMBER_KINDS:
        raise _type_error(name, dtype, f"frame.with_columns(pl.col({name!r}).cast(...)) to numbers")
    return _freeze(name, array)


def _convert_polars_categories(name: str, series: Any) -> FrameColumn:
    import polars as pl

    is_cast = series.dtype.base_type().__name__ == "Categorical"
    if is_cast:
        # polars numbers the categories of all frames together. The Enum numbers the categories of this column from 0.
        series = series.cast(pl.Enum(series.unique().cast(pl.String).sort()))
    column = _freeze(name, series.to_physical().to_numpy())
    return FrameColumn(name, column.array, column.is_copy or is_cast, tuple(series.dtype.categories.to_list()))


def _polars_advice(kind: str) -> str:
    if kind == "String":
        return "cast(pl.Categorical)"
    return "list.to_array(width)" if kind == "List" else "cast(pl.Float64)"


# Arrow


def _convert_arrow(name: str, column: Any) -> FrameColumn:
    import pyarrow as pa

    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    _refuse_nulls(name, column.null_count, f"pyarrow.compute.fill_null(table[{name!r}], 0)")
    chunks = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
    values = (
        chunks.chunk(0) if chunks.num_chunks == 1 else pa.concat_arrays(chunks.chunks or [pa.array([], column.type)])
    )
    if pa.types.is_dictionary(values.type):
        _refuse_nulls(name, values.dictionary.null_count, f"pyarrow.compute.fill_null(table[{name!r}], 0)")
        codes = _freeze(name, values.indices.to_numpy(zero_copy_only=False))
        is_copy = codes.is_copy or chunks.num_chunks > 1
        return FrameColumn(name, codes.array, is_copy, tuple(map(str, values.dictionary.to_pylist())))
    values, shape = _flatten_fixed_lists(name, values)
    if not _is_plain_arrow_type(values.type):
        raise _type_error(name, column.type, f"table[{name!r}].dictionary_encode() if it holds texts, else .cast(...)")
    array = _freeze(name, values.to_numpy(zero_copy_only=False))
    return FrameColumn(name, array.array.reshape(shape), array.is_copy or chunks.num_chunks > 1)


def _flatten_fixed_lists(name: str, values: Any) -> tuple[Any, tuple[int, ...]]:
    """Return all numbers of a column as one flat Arrow array, and the column's shape."""
    import pyarrow as pa

    shape = [len(values)]
    if isinstance(values, pa.ExtensionArray):
        shape.extend(_tensor_shape(name, values.type) if isinstance(values.type, pa.FixedShapeTensorType) else ())
        values = values.storage.flatten() if len(shape) > 1 else values.storage
    while pa.types.is_fixed_size_list(values.type):
        # `flatten` would drop null vectors.
        _refuse_nulls(name, values.null_count, "pyarrow.compute.fill_null() on its values")
        shape.append(values.type.list_size)
        values = values.flatten()
    _refuse_nulls(name, values.null_count, "pyarrow.compute.fill_null() on its values")
    return values, tuple(shape)


def _tensor_shape(name: str, tensor_type: Any) -> list[int]:
    """Return the shape of an Arrow tensor, or raise SpecError if its axes are permuted."""
    order = tensor_type.permutation
    if order is not None and list(order) != sorted(order):
        raise SpecError(f"the tensors of column {name!r} have permuted axes {list(order)}. Store them in row order.")
    return list(tensor_type.shape)


def _is_plain_arrow_type(arrow_type: Any) -> bool:
    import pyarrow as pa

    checks = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_duration,
    )
    return any(check(arrow_type) for check in checks)


# Checks


def _freeze(name: str, array: Array) -> FrameColumn:
    """Make an array of polars or Arrow read-only, and return it as a column.

    The array is a copy if it was writable, because these libraries return their own memory as read-only arrays.
    """
    is_copy = bool(array.flags.writeable)
    array.flags.writeable = False  # no other code refers to a copy, so nothing can change it now
    return FrameColumn(name, array, is_copy)


def _refuse_nulls(name: str, count: int, advice: str) -> None:
    if count:
        raise SpecError(f"column {name!r} has {count} null values, which arrays cannot hold. Fill them with {advice}.")


def _type_error(name: str, dtype: Any, advice: str) -> SpecError:
    return SpecError(
        f"column {name!r} has the type {dtype}, which is not a number. Leave it out with columns=[...], or convert it "
        f"with {advice}."
    )
