"""A source of the rows of a pandas, polars or Arrow frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.errors import SpecError
from forebay.sources.arrays import ArraySource
from forebay.sources.frame_columns import NUMBER_KINDS, FrameColumn, convert_column, library_of_frame

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = ["FrameSource"]

_BLOCK_ROWS = 4096  # rows that are stacked at a time; a block of them stays in the CPU caches


class FrameSource(ArraySource):
    """The rows of a frame. A field is one column, or several columns as vectors."""

    def __init__(
        self,
        frame: Any,
        *,
        columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        dtype: "DTypeLike | Mapping[str, DTypeLike] | None" = None,
    ) -> None:
        selected = _Frame.of(frame)
        requested = _requested_columns(columns, selected.positions)
        dtypes = _requested_dtypes(dtype, list(requested))
        fields = {field: _make_field(field, selected, names, dtypes.get(field)) for field, names in requested.items()}
        super().__init__({field: column.array for field, column in fields.items()})
        categorical = [column.categories for column in fields.values() if column.categories]
        self.class_names = categorical[0] if len(categorical) == 1 else ()
        copies = {field: column.array.nbytes for field, column in fields.items() if column.is_copy}
        self._copied_nbytes = sum(copies.values())
        self.read_decision = Decision("reads", f"{selected.library} frame", _explain_copies(copies))

    @property
    def held_nbytes(self) -> int:
        """Bytes of the columns that Forebay had to copy."""
        return self._copied_nbytes


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame with the positions of its columns."""

    library: str
    frame: Any
    positions: dict[str, list[int]]  # name -> positions of the columns with this name; pandas allows several

    @classmethod
    def of(cls, frame: Any) -> "_Frame":
        library = library_of_frame(frame)
        if library is None:
            raise SpecError(
                f"from_frame() got {type(frame).__name__}. Pass a frame of pandas or polars, or an Arrow table. Use "
                "from_arrays() for arrays and series."
            )
        labels = frame.column_names if library == "pyarrow" else frame.columns
        if getattr(labels, "nlevels", 1) > 1:
            raise SpecError(
                "the columns of the frame have several levels (MultiIndex). Give each column one name, such as with "
                "frame.columns = ['_'.join(map(str, names)) for names in frame.columns]."
            )
        positions: dict[str, list[int]] = {}
        for position, label in enumerate(labels):
            positions.setdefault(str(label), []).append(position)
        return cls(library, frame, positions)

    def column(self, name: str) -> FrameColumn:
        position, *others = self.positions[name]
        if others:
            raise SpecError(f"the frame has two columns named {name!r}. Rename one of them.")
        if self.library == "pandas":
            return convert_column("pandas", name, self.frame.iloc[:, position])
        column = self.frame.to_series(position) if self.library == "polars" else self.frame.column(position)
        return convert_column(self.library, name, column)


def _requested_columns(
    columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None, known: Mapping[str, list[int]]
) -> dict[str, str | list[str]]:
    """Return a dict: field -> column name, or a list of names for a vector."""
    if isinstance(columns, str):
        raise SpecError(f"columns={columns!r} is a single name. Pass a list, such as columns=[{columns!r}].")
    if isinstance(columns, Mapping):
        requested = {
            str(field): [str(name) for name in names] if _is_list(names, known) else str(names)
            for field, names in columns.items()
        }
    elif columns is not None and not hasattr(columns, "__iter__"):
        raise SpecError(f"columns={columns!r} is not a list of names. Pass a list, such as columns=['a', 'b'].")
    else:
        requested = {str(name): str(name) for name in (known if columns is None else columns)}
    if not requested or [] in requested.values():
        raise SpecError(
            "the frame has no columns, or columns= names none for a field. Name at least one column per field."
        )
    for names in requested.values():
        for name in names if isinstance(names, list) else [names]:
            if name not in known:
                raise SpecError(f"the frame has no column {name!r}. Choose from {_list_names(list(known))}.")
    return requested


def _is_list(names: Any, known: Mapping[str, list[int]]) -> bool:
    """Return whether this is a list of names. pandas allows a tuple as name."""
    return not isinstance(names, str | int) and hasattr(names, "__iter__") and str(names) not in known


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _requested_dtypes(
    dtype: "DTypeLike | Mapping[str, DTypeLike] | None", fields: Sequence[str]
) -> dict[str, np.dtype[Any]]:
    if dtype is None:
        return {}
    dtypes = {str(field): value for field, value in dtype.items()} if isinstance(dtype, Mapping) else {}
    for field in dtypes:
        if field not in fields:
            raise SpecError(f"dtype= names {field!r}, but the fields are {_list_names(fields)}. Correct the name.")
    try:
        if not isinstance(dtype, Mapping):
            return dict.fromkeys(fields, _as_dtype(dtype))
        return {field: _as_dtype(value) for field, value in dtypes.items()}
    except TypeError as error:
        raise SpecError(f"dtype={dtype!r} is not a dtype of numbers. Pass for example 'float32'.") from error


def _as_dtype(value: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(value)
    if dtype.kind not in NUMBER_KINDS:
        raise TypeError(f"{dtype} is not a dtype of numbers or times")
    return dtype


def _make_field(field: str, frame: _Frame, names: str | list[str], dtype: np.dtype[Any] | None) -> FrameColumn:
    if isinstance(names, list):
        return _stack(field, [frame.column(name) for name in names], dtype)
    column = frame.column(names)
    if dtype is None or dtype == column.array.dtype:
        return column
    if column.array.dtype.kind in "mM" and dtype == np.dtype("int64"):  # NumPy stores times as int64: no copy
        return _as_ticks(column)
    converted = np.empty(column.array.shape, dtype)
    _convert_into(converted, column)
    return _own(names, converted, column.categories)


def _as_ticks(column: FrameColumn) -> FrameColumn:
    missing = int(np.count_nonzero(np.isnat(column.array)))
    if missing:
        raise SpecError(
            f"column {column.name!r} has {missing} missing times (NaT), which int64 cannot hold. Fill them with "
            f"frame[{column.name!r}].fillna(...)."
        )
    return FrameColumn(column.name, column.array.view(np.int64), column.is_copy)


def _stack(field: str, columns: Sequence[FrameColumn], dtype: np.dtype[Any] | None) -> FrameColumn:
    """Return several columns as one field with a vector for each row."""
    first = columns[0]
    for column in columns:
        if column.array.ndim != 1:
            raise SpecError(f"column {column.name!r} of {field!r} holds vectors already. Make it a field of its own.")
        if dtype is None and column.array.dtype != first.array.dtype:
            raise SpecError(
                f"the columns of {field!r} have different types: {first.name!r} is {first.array.dtype} and "
                f"{column.name!r} is {column.array.dtype}. Pass dtype={{{field!r}: 'float32'}}."
            )
    arrays = [column.array for column in columns]
    if all(array.dtype == (dtype or array.dtype) for array in arrays) and _are_side_by_side(arrays):
        shape, strides = (len(arrays[0]), len(arrays)), (arrays[0].strides[0], arrays[0].itemsize)
        return FrameColumn(field, np.lib.stride_tricks.as_strided(arrays[0], shape, strides, writeable=False))
    stacked = np.empty((len(first.array), len(columns)), dtype or first.array.dtype)
    for start in range(0, len(stacked), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for position, column in enumerate(columns):
            _convert_into(stacked[block, position], FrameColumn(column.name, column.array[block]))
    return _own(field, stacked)


def _are_side_by_side(arrays: Sequence[Array]) -> bool:
    """Return whether the columns are neighbours in the contiguous rows of one array."""
    if len(arrays[0]) < 2:  # the columns of a single row may be neighbours by chance
        return False
    stride, itemsize = arrays[0].strides[0], arrays[0].itemsize
    start = arrays[0].__array_interface__["data"][0]
    return stride >= len(arrays) * itemsize and all(
        array.strides[0] == stride and array.__array_interface__["data"][0] == start + position * itemsize
        for position, array in enumerate(arrays)
    )


def _convert_into(target: Array, column: FrameColumn) -> None:
    """Write a column to an array of another dtype.

    Raise SpecError if the dtype is of another kind, or if an integer dtype cannot hold a value.
    """
    array, name = column.array, column.name
    has_integers = array.dtype.kind in "iu" and target.dtype.kind in "iu"  # their values are compared below
    if not has_integers and not np.can_cast(array.dtype, target.dtype, "same_kind"):
        raise SpecError(f"column {name!r} is {array.dtype}, which {target.dtype} cannot hold. Choose another dtype.")
    np.copyto(target, array, casting="unsafe")
    if target.dtype.kind in "iu" and not np.array_equal(target, array):
        raise SpecError(f"column {name!r} has values that {target.dtype} cannot hold. Choose a wider dtype.")


def _own(name: str, array: Array, categories: tuple[str, ...] = ()) -> FrameColumn:
    array.flags.writeable = False  # no other code refers to the copy, so nothing can change it now
    return FrameColumn(name, array, True, categories)


def _explain_copies(copies: Mapping[str, int]) -> str:
    if not copies:
        return "in place; no column was copied"
    names = _list_names(list(copies))
    nbytes = format_nbytes(sum(copies.values()))
    return f"{nbytes} copied once ({names}), because the columns have another dtype or lie apart in memory"
