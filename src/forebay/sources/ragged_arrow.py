"""List columns of Arrow tables as rows of different length, without a copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, Structure, Tree, flatten
from forebay.errors import SpecError
from forebay.sources.combined import JoinedSource
from forebay.sources.ragged_arrays import RaggedArraySource

__all__ = ["open_lists"]


def open_lists(columns: Tree) -> AbstractSource:
    """Return a source whose rows are the lists of Arrow columns.

    `columns` is one pyarrow array or chunked array, or a dict of such arrays. Each chunk of the columns becomes one
    part of a `JoinedSource`.
    """
    leaves, structure = flatten(columns)
    names = structure.paths
    chunks_by_leaf = [_list_chunks(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    counts = [[len(chunk) for chunk in chunks] for chunks in chunks_by_leaf]
    for name, lengths in zip(names, counts, strict=True):
        if lengths != counts[0]:
            raise SpecError(
                f"the columns {names[0]!r} and {name!r} have chunks of different lengths. Pass columns of one table, "
                "after table.combine_chunks()."
            )
    parts = [_open_chunk(chunks, structure) for chunks in zip(*chunks_by_leaf, strict=True) if len(chunks[0])]
    if not parts:
        raise SpecError(f"the column {names[0]!r} has no rows. Pass a column with at least one row.")
    return parts[0] if len(parts) == 1 else JoinedSource(parts)


def _list_chunks(column: Any, name: str) -> Sequence[Any]:
    """Return the chunks of a column, or raise SpecError unless it has lists of numbers."""
    if type(column).__module__.partition(".")[0] != "pyarrow":
        raise SpecError(
            f"{name!r} is a {type(column).__name__}, which does not say where each row ends. Pass offsets=, or a "
            "pyarrow column of lists."
        )
    import pyarrow as pa  # the column is from pyarrow, so it is installed

    column_type: Any = getattr(column, "type", type(column).__name__)
    is_list = isinstance(column_type, pa.DataType) and (
        pa.types.is_list(column_type) or pa.types.is_large_list(column_type)
    )
    if not is_list or not (pa.types.is_integer(column_type.value_type) or pa.types.is_floating(column_type.value_type)):
        raise SpecError(f"{name!r} holds {column_type}. Pass a column of lists of numbers, such as table['tokens'].")
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _open_chunk(chunks: Sequence[Any], structure: Structure) -> RaggedArraySource:
    """Return the source of one chunk of every column."""
    leaves = [_as_ragged(chunk, name) for chunk, name in zip(chunks, structure.paths, strict=True)]
    return RaggedArraySource(structure.unflatten(leaves))


def _as_ragged(chunk: Any, name: str) -> Ragged:
    """Return a list array as values and offsets, without a copy of the values."""
    values, offsets = chunk.values, np.asarray(chunk.offsets, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if not 0 <= first <= last <= len(values):
        raise SpecError(f"{name!r} is damaged: its lists end at value {last} of {len(values)}. Write it again.")
    values = values.slice(first, last - first)  # a slice of a column may have nulls in its other rows
    if chunk.null_count or values.null_count:
        raise SpecError(f"{name!r} has null values, which arrays cannot hold. Fill or drop the null values.")
    array: Array = values.to_numpy(zero_copy_only=True)
    return Ragged(array, offsets - first)
