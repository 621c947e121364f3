"""`Ragged`: rows of different length as one array of values and their offsets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import SpecError

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = ["Ragged", "map_values", "slot_arrays"]


# If the longest row has at least this many values, a loop over the rows pads them faster than one `take` with an array
# of indices. The loop takes 1.1 us per row, and the array of indices 11 ns per value.
_MIN_LOOP_LENGTH = 100


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of different length: row `i` is `values[offsets[i]:offsets[i + 1]]`.

    Args:
        values: The values of all rows, one after the other.
        offsets: Where each row begins in `values`, and where the last row ends. The first offset is 0.

    Examples:
        >>> import numpy as np
        >>> ragged = Ragged.of_rows([np.array([1, 2, 3]), np.array([4])])
        >>> ragged.values.tolist(), ragged.offsets.tolist(), len(ragged), ragged[1].tolist()
        ([1, 2, 3, 4], [0, 3, 4], 2, [4])
    """

    values: Any
    offsets: Any

    @classmethod
    def of_rows(cls, rows: Sequence[Any]) -> "Ragged":
        """Join rows that differ in their first length. Raise SpecError if their other lengths differ."""
        arrays = [np.asarray(row) for row in rows]
        if not arrays:
            raise SpecError("Ragged.of_rows() got no rows, so the dtype is unknown. Pass at least one row.")
        if any(array.ndim == 0 for array in arrays):
            raise SpecError("a ragged row needs at least one dimension, but a row is a single value. Pass arrays.")
        if len({array.shape[1:] for array in arrays}) > 1:
            shapes = sorted({array.shape for array in arrays})[:3]
            raise SpecError(
                f"ragged rows may differ only in their first length, but have the shapes {shapes}. Make their other "
                "lengths equal."
            )
        # NumPy converts an empty Python list to float64. So empty rows do not count for the dtype of the values.
        dtypes = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        values = np.empty((int(offsets[-1]), *arrays[0].shape[1:]), np.result_type(*dtypes))
        return cls(np.concatenate(arrays, out=values, casting="unsafe"), offsets)

    def take_rows(self, rows: Array | slice) -> "Ragged":
        """Return a copy of the rows with these numbers, in the order of `rows`."""
        starts, stops = self.offsets[:-1][rows], self.offsets[1:][rows]
        lengths = stops - starts
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        indices = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(self.values.take(indices, axis=0), offsets)

    def take_padded(self, rows: Array | slice, value: Any) -> Array:
        """Return the rows with these numbers as one array, padded with `value` to equal length."""
        starts, stops = self.offsets[:-1][rows], self.offsets[1:][rows]
        lengths = stops - starts
        longest = int(lengths.max(initial=0))
        if longest == 0 or longest >= _MIN_LOOP_LENGTH:
            padded = np.full((len(starts), longest, *self.values.shape[1:]), value, self.dtype)
            for target, start, stop in zip(padded, starts.tolist(), stops.tolist(), strict=True):
                target[: stop - start] = self.values[start:stop]
            return padded
        columns = np.arange(longest)
        # For columns beyond the end of a row, `take` returns values of the next rows. After the last row, mode "clip"
        # repeats the last value. The assignment below overwrites all of these with `value`.
        gathered: Array = self.values.take(starts[:, None] + columns, axis=0, mode="clip")
        gathered[columns >= lengths[:, None]] = value
        return gathered

    @property
    def lengths(self) -> Any:
        """The length of each row."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions, including the axis of the rows."""
        return int(self.values.ndim) + 1

    @property
    def shape(self) -> tuple[int | None, ...]:
        """(number of rows, None, other lengths of a row); None is the varying first length."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + int(self.offsets.nbytes)

    @property
    def row_spec(self) -> ArraySpec:
        """The spec of one row."""
        return ArraySpec(self.shape[1:], self.dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} rows does not exist. Pass the number of a row, from 0 on.")
        row %= len(self)
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def tolist(self) -> list[Any]:
        """Return the rows as lists."""
        return [row.tolist() for row in self]

    def astype(self, dtype: "DTypeLike", *, copy: bool = True) -> "Ragged":
        """Return the rows with values of another dtype."""
        return Ragged(self.values.astype(dtype, copy=copy), self.offsets)

    def checked(self) -> "Ragged":
        """Return the same rows with values and offsets as NumPy arrays.

        Raise SpecError if the offsets do not fit the values.
        """
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        is_list = values.ndim > 0 and offsets.ndim == 1 and len(offsets) > 0 and offsets.dtype.kind in "iu"
        if not is_list or (offsets[0], offsets[-1]) != (0, len(values)) or (offsets[1:] < offsets[:-1]).any():
            raise SpecError(
                f"the offsets of ragged rows do not fit their {len(np.atleast_1d(values))} values. Begin offsets with "
                "0, do not let them decrease, and end them with the number of values."
            )
        return Ragged(values, offsets)

    def copy(self) -> "Ragged":
        """Return the same rows with their own memory."""
        return Ragged(self.values.copy(), self.offsets.copy())

    def with_offsets_of(self, dtype: np.dtype[Any]) -> "Ragged":
        """Return the rows with offsets of `dtype`. Raise SpecError if `dtype` is too small."""
        if len(self.values) > np.iinfo(dtype).max:
            raise SpecError(
                f"a batch has {len(self.values)} values, too many for {dtype} offsets. Use smaller batches."
            )
        return Ragged(self.values, np.asarray(self.offsets).astype(dtype, copy=False))


def map_values(function: Callable[..., Any], leaf: Any, *arguments: Any) -> Any:
    """Call a function on an array, or on the values of ragged rows."""
    if isinstance(leaf, Ragged):
        return Ragged(function(leaf.values, *arguments), leaf.offsets)
    return function(leaf, *arguments)


def slot_arrays(leaves: Sequence["Array | Ragged"]) -> list[Array]:
    """Return the arrays that a slot stores for these leaves.

    A leaf of ragged rows has two arrays, its values and its offsets. Every other leaf has one array.
    """
    return [
        array for leaf in leaves for array in ((leaf.values, leaf.offsets) if isinstance(leaf, Ragged) else (leaf,))
    ]
