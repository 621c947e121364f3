"""Arrays in memory: rows are gathered from where they lie, whatever their strides.

`np.take(out=)` is as fast as a gather can be, but only from C-ordered, aligned arrays: from a column slice, a field
view or a Fortran-ordered array it first copies the whole source. So each array gets the way that never does:

    contiguous rows, one after the other     take, rows seen as opaque bytes (which also settles alignment)
    contiguous rows, apart from each other   fancy indexing of rows seen as opaque bytes
    axes in another order                    take along the row axis of the transposed array, then one small transpose
    anything else                            fancy indexing, in pieces that stay in the cache
"""

import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import SpecError

__all__ = ["ArraySource", "GatherLeaf", "extents_of", "gather_leaf", "memory_region"]

GatherLeaf: TypeAlias = Callable[[Rows, Array], None]

MOST_OPAQUE_NBYTES = 2**31  # NumPy's limit for one item
_PIECE_NBYTES = 256 * 1024  # temporaries up to this stay in a core's own cache


class ArraySource(AbstractSource):
    """A tree of arrays of equal length, gathered in place: the data is never copied as a whole."""

    def __init__(self, tree: Tree) -> None:
        leaves, self.structure = flatten(tree)
        arrays = [_as_array(leaf, name) for leaf, name in zip(leaves, self.structure.paths, strict=True)]
        self._length = _common_length(arrays, self.structure)
        self.specs = tuple(ArraySpec(array.shape[1:], array.dtype) for array in arrays)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)
        self._arrays = arrays
        self._gathers = [gather_leaf(array) for array in arrays]
        self.immutable = not any(array.flags.writeable for array in arrays)

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]

    @property
    def arrays(self) -> Sequence[Array]:
        """The leaves, whole."""
        return self._arrays

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return extents_of(self._arrays)

    def close(self) -> None:
        """The arrays are the user's: nothing to give back."""


def gather_leaf(array: Array) -> GatherLeaf:
    """The fastest way to write chosen rows of this array into a C-ordered one of native byte order."""
    if array.dtype.isnative:
        return _gather_native(array)
    if array.dtype.fields is not None:
        return _gather_converted(array)
    gather = _gather_native(array.view(array.dtype.newbyteorder("=")))

    def gather_swapped(rows: Rows, out: Array) -> None:
        gather(rows, out)
        out.byteswap(inplace=True)

    return gather_swapped


def _gather_converted(array: Array) -> GatherLeaf:
    """Records some of whose fields are in another byte order: NumPy converts them one by one."""
    gather = _gather_native(array)

    def gather_converted(rows: Rows, out: Array) -> None:
        swapped = np.empty(out.shape, array.dtype)
        gather(rows, swapped)
        out[...] = swapped

    return gather_converted


def memory_region(array: Array) -> MemoryRegion:
    """The bytes an array spans, first to last, gaps included."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return MemoryRegion(low, high - low, bool(array.flags.writeable))


def extents_of(arrays: Sequence[Array], *, own_pages: bool = False) -> list[list[MemoryExtent]]:
    """Where the rows of each array lie, if all of them are whole and in native byte order; else nothing."""
    if not all(array[:1].flags.c_contiguous and array.dtype.isnative and _steps_forward(array) for array in arrays):
        return []
    return [
        [
            MemoryExtent(
                first=0,
                rows=len(array),
                address=array.__array_interface__["data"][0],
                stride=array.strides[0],
                writable=bool(array.flags.writeable),
                own_pages=own_pages,
            )
        ]
        for array in arrays
    ]


def _steps_forward(array: Array) -> bool:
    """Whether there are rows, of some bytes, each further on than the one before."""
    return array.size > 0 and array.strides[0] > 0


def _gather_native(array: Array) -> GatherLeaf:
    row_nbytes = array.dtype.itemsize * math.prod(array.shape[1:])
    if row_nbytes == 0 or len(array) == 0:
        return _gather_nothing
    if array[:1].flags.c_contiguous and row_nbytes < MOST_OPAQUE_NBYTES:
        rows = _as_opaque_rows(array, row_nbytes)
        return _Take(rows) if rows.flags.c_contiguous else _FancyOpaque(rows)
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    if array.transpose(axes).flags.c_contiguous and array.flags.aligned:
        return _TakeTransposed(array.transpose(axes), axes)
    return _FancyPieces(array, row_nbytes)


class _Take:
    def __init__(self, rows: Array) -> None:
        self._rows = rows

    def __call__(self, rows: Rows, out: Array) -> None:
        target = out.reshape(-1).view(self._rows.dtype)
        if isinstance(rows, slice):
            target[...] = self._rows[rows]
        else:
            # Without "clip", take writes into a buffer of its own first. The order never leaves the range.
            self._rows.take(rows, out=target, mode="clip")


class _FancyOpaque:
    def __init__(self, rows: Array) -> None:
        self._rows, self._piece = rows, max(1, _PIECE_NBYTES // rows.dtype.itemsize)

    def __call__(self, rows: Rows, out: Array) -> None:
        target = out.reshape(-1).view(self._rows.dtype)
        if isinstance(rows, slice):
            target[...] = self._rows[rows]
            return
        for start in range(0, len(rows), self._piece):
            piece = slice(start, start + self._piece)
            target[piece] = self._rows[rows[piece]]


class _TakeTransposed:
    def __init__(self, array: Array, axes: Sequence[int]) -> None:
        self._array, self._row_axis = array, list(axes).index(0)
        self._back = tuple(int(axis) for axis in np.argsort(axes))

    def __call__(self, rows: Rows, out: Array) -> None:
        if isinstance(rows, slice):
            index = (slice(None),) * self._row_axis + (rows,)
            out[...] = self._array[index].transpose(self._back)
            return
        out[...] = self._array.take(rows, axis=self._row_axis, mode="clip").transpose(self._back)


class _FancyPieces:
    def __init__(self, array: Array, row_nbytes: int) -> None:
        self._array, self._piece = array, max(1, _PIECE_NBYTES // row_nbytes)

    def __call__(self, rows: Rows, out: Array) -> None:
        if isinstance(rows, slice):
            out[...] = self._array[rows]
            return
        for start in range(0, len(rows), self._piece):
            piece = slice(start, start + self._piece)
            out[piece] = self._array[rows[piece]]


def _gather_nothing(rows: Rows, out: Array) -> None:
    """Rows without a byte in them."""


def _as_opaque_rows(array: Array, row_nbytes: int) -> Array:
    """The rows of an array as one opaque item each; strides of a single row mean nothing and are set right."""
    stride = row_nbytes if len(array) == 1 else array.strides[0]
    return np.asarray(_OpaqueRows(array, row_nbytes, stride))


class _OpaqueRows:
    """NumPy's array interface over somebody's rows; it keeps them alive."""

    def __init__(self, array: Array, row_nbytes: int, stride: int) -> None:
        self._array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(array),),
            "typestr": f"|V{row_nbytes}",
            "data": (array.__array_interface__["data"][0], True),
            "strides": (stride,),
        }


def _as_array(leaf: Any, name: str) -> Array:
    if isinstance(leaf, np.ma.MaskedArray):
        raise SpecError(
            f"{name!r} is a masked array, and its mask would be lost: pass array.filled(value), or the mask too."
        )
    if isinstance(leaf, np.ndarray):
        array = leaf.view(np.ndarray) if type(leaf) is not np.ndarray else leaf
    elif type(leaf).__module__.partition(".")[0] in ("pandas", "polars"):
        raise SpecError(
            f"{name!r} is a {type(leaf).__name__}: pass its columns as arrays, for example frame['x'].to_numpy()."
        )
    else:
        try:
            array = np.asarray(leaf)
        except ValueError as error:
            raise SpecError(
                f"{name!r} is not an array: {error}. Make its rows alike, or use from_source() with pad."
            ) from error
    if array.ndim == 0:
        named = " Files are read by from_files()." if isinstance(leaf, str | PathLike) else ""
        raise SpecError(f"{name!r} is a single value, {array!r}: every array needs rows along its first axis.{named}")
    return array


def _common_length(arrays: Sequence[Array], structure: Structure) -> int:
    lengths = {name: len(array) for name, array in zip(structure.paths, arrays, strict=True)}
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise SpecError(f"every array must have the same number of rows, but {told}. Cut them to one length first.")
    return len(arrays[0])
