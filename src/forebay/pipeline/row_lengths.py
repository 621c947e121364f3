"""The lengths of rows, for `batch(tokens=)`: given by the user, known to the source, or read."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.orders import Order, require_length
from forebay.pipeline.description import PipelineDescription
from forebay.sources.row_filter import find_leaf
from forebay.transforms.ops import Map

__all__ = ["find_lengths"]

CHUNK_ROWS = 4096  # rows that are read at a time


def find_lengths(pipeline: PipelineDescription, order: Order, lengths: Any) -> Array:
    """Return the length of the row at each position of a fixed order.

    `lengths` is the user's argument: None, names of fields, or the lengths themselves. If a row has several fields,
    the longest counts. Fields that have the same length in all rows count only if there is no other field.
    """
    count = require_length(order, "batch")
    if lengths is not None and not isinstance(lengths, str) and not _are_names(lengths):
        return _check_lengths(lengths, count)
    _refuse_maps(pipeline)
    leaves = _find_leaves(pipeline, lengths)
    columns = [_stored_lengths(pipeline, leaf) for leaf in leaves]
    numbers = order.rows(0, np.arange(count, dtype=np.int64)).astype(np.intp, copy=False)
    known = [column for column in columns if column is not None]
    found = [column[numbers] for column in known] if len(known) == len(columns) else _read(pipeline, leaves, numbers)
    varying = [column for column in found if column.min() < column.max()] if lengths is None else found
    longest: Array = np.max(varying or found, axis=0)
    return longest


def _are_names(lengths: Any) -> bool:
    return isinstance(lengths, list | tuple) and bool(lengths) and all(isinstance(name, str) for name in lengths)


def _check_lengths(lengths: Any, count: int) -> Array:
    array = np.asarray(lengths)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise PipelineError(
            f"batch(lengths=...) is {array.dtype}{list(array.shape)} for {count} rows. Pass one whole number for each "
            "row, in the order before shuffle(), or names of fields."
        )
    if array.min() < 0:
        row = int(array.argmin())
        raise PipelineError(f"batch(lengths=...): the length of row {row} is {array[row]}. Pass 0 or more.")
    return array.astype(np.int64)


def _refuse_maps(pipeline: PipelineDescription) -> None:
    for transform in pipeline.transforms:
        if isinstance(transform, Map):
            raise PipelineError(
                f"batch(tokens=...) reads the lengths of the stored rows, but {transform} comes before it and may "
                "change them. Pass lengths= with the lengths after the map, or call map() after batch()."
            )


def _find_leaves(pipeline: PipelineDescription, names: str | Sequence[str] | None) -> list[int]:
    """Return the named leaves, or all with a dimension."""
    if names is not None:
        chosen = [names] if isinstance(names, str) else names
        leaves = [find_leaf(pipeline.structure, name, "batch") for name in chosen]
    else:
        leaves = [leaf for leaf, spec in enumerate(pipeline.specs) if spec.shape]
    for leaf in leaves:
        if not pipeline.specs[leaf].shape:
            name = pipeline.structure.paths[leaf]
            raise PipelineError(
                f"batch(lengths=...): {name!r} is a single value, without a length. Name another field."
            )
    if not leaves:
        raise PipelineError(
            "batch(tokens=...) needs rows with a length, but all fields are single values. Use batch(n)."
        )
    return leaves


def _stored_lengths(pipeline: PipelineDescription, leaf: int) -> Array | None:
    """Return the length of each row of the source, or None if the rows must be read."""
    source, spec = pipeline.source, pipeline.specs[leaf]
    assert isinstance(source, AbstractSource)
    if spec.shape[0] is not None and not source.row_by_row:
        return np.broadcast_to(np.int64(spec.shape[0]), (len(source),))
    return source.row_lengths(leaf)


def _read(pipeline: PipelineDescription, leaves: Sequence[int], numbers: Array) -> list[Array]:
    """Read all rows, and return the lengths of each leaf."""
    source = pipeline.source
    assert isinstance(source, AbstractSource)
    found = np.empty((len(leaves), len(numbers)), np.int64)
    for start in range(0, len(numbers), CHUNK_ROWS):
        for position, row in enumerate(source.gather_rows(numbers[start : start + CHUNK_ROWS]), start):
            found[:, position] = [len(row[leaf]) for leaf in leaves]
    return list(found)
