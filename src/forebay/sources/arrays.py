"""`ArraySource`: arrays in memory, with a fast gather function for each memory layout.

To gather means to copy the rows with given numbers into an output array. NumPy's fastest function for this is
`np.take(out=)`. But if the array is a column slice, a field view or Fortran-ordered, `take` first copies all of it. So
this module has a gather function for each memory layout, and none of these functions copies the complete array:

    contiguous rows                         a C function (`row_gather.py`). If it is not compiled, or not faster:
      no gaps between rows                    `take` of opaque rows
      gaps, or overlapping rows               fancy indexing of opaque rows
    axes in another order                   `take` along the row axis of the transposed array, then transpose the result
    any other layout                        fancy indexing of a few rows at a time, which fit in the CPU cache

An opaque row is a row viewed as one item of a void dtype. NumPy can copy such items from any address.
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import SpecError
from forebay.sources.frame_columns import convert_column, library_of_column, library_of_frame
from forebay.sources.row_gather import RowGather, load_library

__all__ = [
    "ArraySource",
    "GatherFunction",
    "as_array",
    "can_change",
    "common_length",
    "locate_extents",
    "make_gather",
    "memory_extent",
    "memory_region",
    "window_view",
]

GatherFunction: TypeAlias = Callable[[Rows, Array], None]

_MAX_OPAQUE_ROW_NBYTES = 2**31  # bytes; NumPy's limit for the size of one item
_PART_NBYTES = 256 * 1024  # bytes; temporary arrays up to this size stay in the private cache of a core
# Bytes of a row. For rows of these sizes without gaps, the C function is faster than `take`, if a call gathers at least
# `_MIN_C_ROWS` rows (docs/measurements.md#gathering-rows-in-c).
_MIN_C_ROW_NBYTES, _MAX_C_ROW_NBYTES = 64, 4 * 1024
_MIN_C_ROWS = 256


class ArraySource(AbstractSource):
    """The rows of arrays of equal length. NumPy arrays are not copied."""

    def __init__(self, tree: Tree) -> None:
        leaves, self.structure = flatten(tree)
        arrays = [as_array(leaf, name) for leaf, name in zip(leaves, self.structure.paths, strict=True)]
        self._length = common_length(arrays, self.structure)
        self.specs = tuple(ArraySpec(array.shape[1:], array.dtype) for array in arrays)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)
        self._arrays = arrays
        self._gathers = [make_gather(array) for array in arrays]
        self.immutable = not any(map(can_change, arrays))
        self.identify = partial(list, arrays)

    def __len__(self) -> int:
        return self._length

    @property
    def arrays(self) -> Sequence[Array]:
        """The complete array of each leaf."""
        return self._arrays

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def windows(self, rows: slice, length: int, stride: int) -> "ArraySource":
        views = [window_view(array[rows], length, stride) for array in self._arrays]
        windows = ArraySource(self.structure.unflatten(views))
        windows.class_names = self.class_names
        return windows

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        out = [self.specs[leaf].empty(row_count(rows)) for leaf in leaves]
        for leaf, array in zip(leaves, out, strict=True):
            self._gathers[leaf](rows, array)
        return out

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return locate_extents(self._arrays)


def window_view(array: Array, length: int, stride: int) -> Array:
    """Return a view of windows of `length` rows. A window begins at every `stride`-th row."""
    count = max(0, (len(array) - length) // stride + 1)
    shape, strides = (count, length, *array.shape[1:]), (array.strides[0] * stride, *array.strides)
    return np.lib.stride_tricks.as_strided(array, shape, strides)


def memory_region(array: Array) -> MemoryRegion:
    """Return the memory from the first to the last element of an array, including gaps."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return MemoryRegion(low, high - low, bool(array.flags.writeable))


def locate_extents(arrays: Sequence[Array], *, own_pages: bool = False) -> list[list[MemoryExtent]]:
    """Return the memory extents of each array, so that a device can read them.

    Return an empty list if an array is empty, is not in native byte order, or has rows that are not contiguous or have
    no increasing addresses. `own_pages` is True if the memory pages of the arrays hold no other data.
    """
    if not all(
        array[:1].flags.c_contiguous and array.dtype.isnative and _has_increasing_addresses(array) for array in arrays
    ):
        return []
    return [[memory_extent(array, own_pages=own_pages)] for array in arrays]


def memory_extent(array: Array, *, first: int = 0, own_pages: bool = False) -> MemoryExtent:
    """Return the location of an array with contiguous rows, which are numbered from `first`."""
    address, writable = array.__array_interface__["data"][0], bool(array.flags.writeable)
    return MemoryExtent(first, len(array), address, array.strides[0], writable, own_pages)


def _has_increasing_addresses(array: Array) -> bool:
    """Return whether the array is not empty and its rows have increasing addresses."""
    return array.size > 0 and array.strides[0] > 0


def make_gather(array: Array) -> GatherFunction:
    """Return the fastest function that gathers rows of this array.

    The output of the function must be a C-ordered array in native byte order.
    """
    if array.dtype.isnative:
        return _make_native_gather(array)
    if array.dtype.fields is not None:
        return _make_converting_gather(array)
    gather = _make_native_gather(array.view(array.dtype.newbyteorder("=")))

    def gather_and_swap_bytes(rows: Rows, out: Array) -> None:
        gather(rows, out)
        out.byteswap(inplace=True)

    return gather_and_swap_bytes


def _make_converting_gather(array: Array) -> GatherFunction:
    """Return a gather function for structured arrays with fields in non-native byte order.

    It lets NumPy convert each field to the native byte order.
    """
    gather = _make_native_gather(array)

    def gather_and_convert(rows: Rows, out: Array) -> None:
        unconverted = np.empty(out.shape, array.dtype)
        gather(rows, unconverted)
        out[...] = unconverted

    return gather_and_convert


def _make_native_gather(array: Array) -> GatherFunction:
    """Return the fastest gather function that copies bytes without conversion."""
    row_nbytes = array.dtype.itemsize * math.prod(array.shape[1:])
    if row_nbytes == 0 or len(array) == 0:
        return _gather_nothing
    if array[:1].flags.c_contiguous and row_nbytes < _MAX_OPAQUE_ROW_NBYTES:
        return _OpaqueGather(_view_opaque_rows(array, row_nbytes))
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    if array.transpose(axes).flags.c_contiguous and array.flags.aligned:
        return _TransposedGather(array.transpose(axes), axes)
    return _PartwiseGather(array, row_nbytes)


class _OpaqueGather:
    """Gathers opaque rows, by `gather_rows.c` if it is compiled and faster than NumPy."""

    def __init__(self, opaque_rows: Array) -> None:
        self._opaque_rows = opaque_rows
        row_nbytes, has_gaps = opaque_rows.dtype.itemsize, not opaque_rows.flags.c_contiguous
        self._part_rows = max(1, _PART_NBYTES // row_nbytes)
        self._gather_few: Callable[[Array, Array], None] = self._index if has_gaps else self._take
        self._gather_many = self._gather_few
        if load_library() is not None and (has_gaps or _MIN_C_ROW_NBYTES <= row_nbytes <= _MAX_C_ROW_NBYTES):
            self._gather_many = RowGather([memory_extent(opaque_rows)], row_nbytes, [opaque_rows])

    def __call__(self, rows: Rows, out: Array) -> None:
        if isinstance(rows, slice):
            out.reshape(-1).view(self._opaque_rows.dtype)[...] = self._opaque_rows[rows]
        elif len(rows) < _MIN_C_ROWS:
            self._gather_few(rows, out)
        else:
            self._gather_many(rows, out)

    def __reduce__(self) -> Any:
        """Pickle only the array, because its addresses are different in another process."""
        return _OpaqueGather, (self._opaque_rows,)

    def _take(self, rows: Array, out: Array) -> None:
        # With the default mode "raise", `take` writes to a temporary buffer first. "clip" changes no row number,
        # because all row numbers are in range.
        self._opaque_rows.take(rows, out=out.reshape(-1).view(self._opaque_rows.dtype), mode="clip")

    def _index(self, rows: Array, out: Array) -> None:
        """Gather rows that have gaps or overlap. `take` would first copy the complete array."""
        target = out.reshape(-1).view(self._opaque_rows.dtype)
        for start in range(0, len(rows), self._part_rows):
            part = slice(start, start + self._part_rows)
            target[part] = self._opaque_rows[rows[part]]


class _TransposedGather:
    """Gathers rows of an array that becomes C-ordered if its axes are permuted."""

    def __init__(self, array: Array, axes: Sequence[int]) -> None:
        self._array, self._row_axis = array, list(axes).index(0)
        self._inverse_axes = tuple(int(axis) for axis in np.argsort(axes))

    def __call__(self, rows: Rows, out: Array) -> None:
        if isinstance(rows, slice):
            index = (slice(None),) * self._row_axis + (rows,)
            out[...] = self._array[index].transpose(self._inverse_axes)
            return
        out[...] = self._array.take(rows, axis=self._row_axis, mode="clip").transpose(self._inverse_axes)


class _PartwiseGather:
    """Gathers rows of an array of any layout, a few rows at a time."""

    def __init__(self, array: Array, row_nbytes: int) -> None:
        self._array, self._part_rows = array, max(1, _PART_NBYTES // row_nbytes)

    def __call__(self, rows: Rows, out: Array) -> None:
        if isinstance(rows, slice):
            out[...] = self._array[rows]
            return
        for start in range(0, len(rows), self._part_rows):
            part = slice(start, start + self._part_rows)
            out[part] = self._array[rows[part]]


def _gather_nothing(rows: Rows, out: Array) -> None:
    """Do nothing, because the array has no rows, or its rows have no bytes."""


def _view_opaque_rows(array: Array, row_nbytes: int) -> Array:
    """Return a view of the array with one opaque item for each row."""
    # NumPy may report any stride for an array with one row.
    stride = row_nbytes if len(array) == 1 else array.strides[0]
    return np.asarray(_OpaqueRows(array, row_nbytes, stride))


class _OpaqueRows:
    """Exposes rows as opaque items through NumPy's array interface, and keeps the array alive."""

    def __init__(self, array: Array, row_nbytes: int, stride: int) -> None:
        self._array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(array),),
            "typestr": f"|V{row_nbytes}",
            "data": (array.__array_interface__["data"][0], True),
            "strides": (stride,),
        }


def as_array(leaf: Any, name: str) -> Array:
    """Convert a leaf of a user's tree to an array, or raise SpecError."""
    if isinstance(leaf, np.ma.MaskedArray):
        raise SpecError(
            f"{name!r} is a masked array, and its mask would be lost. Pass array.filled(value), or pass array.data and "
            "array.mask as two fields."
        )
    if isinstance(leaf, np.ndarray):
        array = leaf.view(np.ndarray) if type(leaf) is not np.ndarray else leaf
    elif (library := library_of_column(leaf)) is not None:
        array = convert_column(library, name, leaf).array
    elif library_of_frame(leaf) is not None:
        raise SpecError(
            f"{name!r} is a frame inside of a tree. Pass the frame alone to from_frame(), which also makes a vector of "
            "several columns: columns={'x': ['a', 'b'], 'y': 'label'}."
        )
    else:
        _refuse_loader(leaf, name)
        try:
            array = np.asarray(leaf)
        except ValueError as error:
            advice = "Give all rows one shape, or use from_source() and batch(..., pad=0)."
            raise SpecError(f"{name!r} is not an array: {str(error).rstrip('.')}. {advice}") from error
    if array.ndim == 0:
        hint = " Use from_files() to read files." if isinstance(leaf, str | PathLike) else ""
        raise SpecError(f"{name!r} is a single value, {array!r}. Pass an array with rows along its first axis.{hint}")
    return array


def _refuse_loader(leaf: Any, name: str) -> None:
    """Raise SpecError for a loader, which NumPy would read completely or treat as one value."""
    kind = type(leaf)
    if any(base.__name__ == "PyDataset" for base in kind.__mro__):
        raise SpecError(f"{name!r} is a PyDataset of Keras, which yields batches. Write from_batches(dataset).")
    if any(base.__module__ == "torch.utils.data.dataset" for base in kind.__mro__):
        advice = "from_arrays(dataset.tensors)" if hasattr(leaf, "tensors") else "from_source(dataset)"
        raise SpecError(f"{name!r} is a dataset of PyTorch, not an array. Write {advice}.")
    if kind.__module__.startswith("forebay.") and hasattr(kind, "__iter__"):
        raise SpecError(f"{name!r} is a {kind.__name__} of Forebay already. Use it without from_arrays().")
    if not hasattr(kind, "__iter__") or hasattr(kind, "__getitem__") or isinstance(leaf, Collection):
        return
    if _has_memory(leaf) or any(hasattr(leaf, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return
    raise SpecError(
        f"{name!r} is a {kind.__name__}, not an array. If it yields batches, write from_batches(loader). If it yields "
        "rows, write from_generator(lambda: loader)."
    )


def _has_memory(leaf: Any) -> bool:
    """Return whether an object supports the buffer protocol in this Python version."""
    try:
        memoryview(leaf).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def can_change(array: Array) -> bool:
    """Return whether the array, or an array of which it is a view, is writable."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def common_length(leaves: Sequence[Any], structure: Structure) -> int:
    """Return the number of rows that all leaves have. Raise SpecError if their lengths differ."""
    lengths = {name: leaf.shape[0] for name, leaf in zip(structure.paths, leaves, strict=True)}
    if len(set(lengths.values())) != 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise SpecError(f"the arrays differ in their number of rows: {listed}. Cut them to one length.")
    return int(leaves[0].shape[0])
