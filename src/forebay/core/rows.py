"""`Rows`, the numbers of the rows to read in one call, and functions on `Rows`."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from forebay.core.spec import Array

__all__ = [
    "Rows",
    "find_parts",
    "row_array",
    "row_count",
    "row_numbers",
    "row_views",
    "select_rows",
    "split_by_part",
    "split_range",
    "split_rows",
    "split_runs",
    "split_slice",
]

# Row numbers in any order, or a slice (start and stop, no step) for consecutive rows.
Rows: TypeAlias = np.ndarray[Any, np.dtype[np.intp]] | slice

_FEW_PARTS = 8  # up to this number of parts, one comparison per part takes less time than a sort or a search


def row_count(rows: Rows) -> int:
    """Return the number of rows."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def row_numbers(rows: Rows) -> Sequence[int]:
    """Return the row numbers as Python integers."""
    if isinstance(rows, slice):
        return range(rows.start, rows.stop)
    numbers: list[int] = rows.tolist()
    return numbers


def row_array(rows: Rows) -> Array:
    """Return the row numbers as an array."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def select_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Return `rows[start:stop]`: the row numbers at these positions."""
    if not isinstance(rows, slice):
        return rows[start:stop]
    return slice(rows.start + start, min(rows.start + stop, rows.stop))


def split_rows(rows: Rows, part_rows: int) -> Iterator[tuple[int, Rows]]:
    """Yield (position, row numbers) of consecutive parts with at most `part_rows` rows.

    >>> list(split_rows(slice(5, 10), 3))
    [(0, slice(5, 8, None)), (3, slice(8, 10, None))]
    """
    for part in split_range(row_count(rows), part_rows):
        yield part.start, select_rows(rows, part.start, part.stop)


def split_range(length: int, part_length: int) -> Iterator[slice]:
    """Yield the parts of `range(length)` with at most `part_length` numbers, as slices.

    >>> list(split_range(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, length, part_length):
        yield slice(start, min(start + part_length, length))


def row_views(array: Array) -> list[Array]:
    """Return one view per row of an array, for fast assignments.

    `view[...] = value` takes a third of the time of `array[index] = value`.
    """
    return [array[row, ...] for row in range(len(array))]


def find_parts(rows: Array, boundaries: Array) -> Array:
    """Return for each row number the index of its part, such as a file.

    Part `i` begins at row `boundaries[i]`. No row number may be below `boundaries[0]`.

    >>> find_parts(np.asarray([0, 5, 3, 9]), np.asarray([0, 3, 9])).tolist()
    [0, 1, 1, 2]
    """
    if len(boundaries) > _FEW_PARTS:
        return np.searchsorted(boundaries, rows, side="right") - 1
    parts = np.zeros(np.shape(rows), np.int8)
    for boundary in boundaries[1:]:
        parts += (rows >= boundary).view(np.int8)  # NumPy would convert each bool; a view needs no conversion
    return parts.astype(np.intp)


def split_slice(rows: slice, boundaries: Sequence[int] | Array) -> Iterator[tuple[int, slice]]:
    """Split consecutive rows at sorted boundaries; yield the index of each part and its rows.

    Part `i` has the rows `boundaries[i]` to `boundaries[i + 1] - 1`. The function skips empty parts.

    >>> list(split_slice(slice(2, 7), [0, 3, 3, 5, 9]))
    [(0, slice(2, 3, None)), (2, slice(3, 5, None)), (3, slice(5, 7, None))]
    """
    start: int = rows.start
    while start < rows.stop:
        part = bisect_right(boundaries, start) - 1
        stop = min(rows.stop, int(boundaries[part + 1]))
        yield part, slice(start, stop)
        start = stop


def split_runs(parts: Array) -> Iterator[tuple[int, slice]]:
    """Yield (part, positions) of each run of consecutive positions with an equal part.

    `parts` is the result of `find_parts(rows, ...)`: `parts[i]` is the part of `rows[i]`. If `parts` is sorted, each
    part has one run.

    >>> list(split_runs(np.asarray([4, 4, 7, 9, 9])))
    [(4, slice(0, 2, None)), (7, slice(2, 3, None)), (9, slice(3, 5, None))]
    """
    if len(parts) == 0:
        return
    changes = np.flatnonzero(parts[1:] != parts[:-1]) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(parts)]):
        yield int(parts[start]), slice(start, stop)


def split_by_part(parts: Array, part_count: int) -> Iterator[tuple[int, Array]]:
    """Yield (part, positions of this part) for each part in `parts`, in ascending order.

    >>> [(part, positions.tolist()) for part, positions in split_by_part(np.asarray([2, 0, 2, 2]), 3)]
    [(0, [1]), (2, [0, 2, 3])]
    """
    if part_count <= _FEW_PARTS:
        positions = ((part, np.flatnonzero(parts == part)) for part in range(part_count))
        yield from ((part, found) for part, found in positions if len(found))
        return
    # NumPy uses a radix sort for 8-bit and 16-bit integers, several times faster than its sort of longer integers.
    order = np.argsort(parts.astype(np.min_scalar_type(part_count - 1), copy=False), kind="stable")
    yield from ((part, order[run]) for part, run in split_runs(parts[order]))
