"""The lengths of rows, for methods that arrange rows by length.

The user passes the lengths, the source knows them, or Forebay reads all rows.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.choices import consecutive_start
from forebay.order.orders import Order, require_length
from forebay.pipeline.description import PipelineDescription
from forebay.pipeline.index_folder import RowPass, recall_or_read
from forebay.sources.row_filter import find_leaf
from forebay.transforms.ops import Map

__all__ = ["check_lengths", "find_lengths", "read_lengths", "rows_at"]

P = TypeVar("P", bound=PipelineDescription)

_MAX_LENGTH = 2**63 - 1  # largest length of a row
_ROWS_AT_ONCE = 128  # rows that are in memory at a time, if the source does not know the lengths
_REPORT_SECONDS = 10.0  # between two log messages about the progress of reading all rows

_log = logging.getLogger(__name__)


def check_lengths(lengths: Any, count: int, call: str) -> Array:
    """Return the lengths that the user gave, one for each row, or raise PipelineError."""
    try:
        array = np.asarray(lengths)
    except ValueError:  # nested lists of different length
        raise PipelineError(f"{call} got {lengths!r}. Pass one whole number for each row.") from None
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise PipelineError(f"{call} got {array.dtype}{list(array.shape)}. Pass one whole number for each row.")
    if len(array) != count:
        raise PipelineError(f"{call} got {len(array)} lengths for {count} rows. Pass one for each row.")
    if len(array) and array.min() < 0:
        raise PipelineError(f"{call} got the length {array.min()} for row {int(array.argmin())}. Pass lengths from 0.")
    if len(array) and array.max() > _MAX_LENGTH:
        row = int(array.argmax())
        raise PipelineError(f"{call} got the length {array.max()} for row {row}. Pass lengths up to {_MAX_LENGTH}.")
    return array


def find_lengths(pipeline: P, order: Order, lengths: Any) -> tuple[Array, P]:
    """Return the length of the row at each position of a fixed order, for `batch(tokens=)`.

    `lengths` is the user's argument: None, names of fields, or the lengths themselves. If several fields count, the
    longest one of each row counts. With None, fields that have the same length in all rows count only if there is no
    other field. Also return the pipeline. `read_lengths` may add a decision to it.
    """
    if lengths is not None and not isinstance(lengths, str) and not _are_names(lengths):
        return check_lengths(lengths, require_length(order, "batch"), "batch(lengths=...)").astype(np.int64), pipeline
    _refuse_maps(pipeline)
    found, pipeline = read_lengths(pipeline, order, _find_leaves(pipeline, lengths), "batch()")
    if len(found) > 1 and lengths is None:
        found = [column for column in found if column.min() < column.max()] or found
    if len(found) == 1:
        return found[0], pipeline  # without a copy
    longest: Array = np.max(found, axis=0)
    return longest, pipeline


def read_lengths(pipeline: P, order: Order, leaves: Sequence[int], call: str) -> tuple[list[Array], P]:
    """Return, for each leaf, the length of its first dimension at each position of a fixed order.

    If the source knows the lengths of all these leaves, no row is read. Otherwise all rows are read once, unless the
    folder of `index()` has the lengths. Also return the pipeline. If the source does not know the lengths, `index()`
    adds a decision to it.
    """
    stored = [_stored_lengths(pipeline, leaf) for leaf in leaves]
    known = [lengths for lengths in stored if lengths is not None]
    if len(known) < len(stored):
        shape = len(leaves), require_length(order, call)
        row_pass = RowPass(call, order, ("lengths", tuple(leaves)), np.dtype(np.uint32), shape)
        lengths, pipeline = recall_or_read(pipeline, row_pass, lambda: _scan_lengths(pipeline, order, leaves, call))
        return list(lengths), pipeline
    count, start = require_length(order, call), consecutive_start(order)
    if start is not None:
        return [lengths[start : start + count] for lengths in known], pipeline
    rows = rows_at(order, np.arange(count))
    return [lengths[rows] for lengths in known], pipeline


def rows_at(order: Order, positions: Array) -> Array:
    """Return the row numbers at positions of a fixed order."""
    return order.rows(0, positions.astype(np.int64, copy=False)).astype(np.intp, copy=False)


def _are_names(lengths: Any) -> bool:
    return isinstance(lengths, list | tuple) and bool(lengths) and all(isinstance(name, str) for name in lengths)


def _refuse_maps(pipeline: PipelineDescription) -> None:
    for transform in pipeline.transforms:
        if isinstance(transform, Map):
            raise PipelineError(
                f"batch(tokens=...) reads the lengths of the stored rows, but {transform} comes before it and may "
                "change them. Pass lengths= with the lengths after the map, or call map() after batch()."
            )


def _find_leaves(pipeline: PipelineDescription, names: str | Sequence[str] | None) -> list[int]:
    """Return the indices of the named leaves; without names, of all leaves with a dimension."""
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
    """Return the length of each row of a leaf; None if rows must be read."""
    source, spec = pipeline.source, pipeline.specs[leaf]
    assert isinstance(source, AbstractSource)
    if spec.shape[0] is not None and not source.infers_specs:
        return np.broadcast_to(np.int64(spec.shape[0]), (len(source),))
    return source.row_lengths(leaf)


def _scan_lengths(pipeline: PipelineDescription, order: Order, leaves: Sequence[int], call: str) -> Array:
    """Read all rows once, `_ROWS_AT_ONCE` at a time, and return the lengths of each leaf."""
    source = pipeline.source
    assert isinstance(source, AbstractSource)
    count, start = require_length(order, call), consecutive_start(order)
    lengths, reported_at = np.empty((len(leaves), count), np.uint32), time.monotonic()
    with ProgressLine(f"{call} reads the lengths of {count:,} rows", count) as progress:
        for first in range(0, count, _ROWS_AT_ONCE):
            stop = progress.done = min(first + _ROWS_AT_ONCE, count)
            consecutive = slice(start + first, start + stop) if start is not None else None
            rows: Rows = rows_at(order, np.arange(first, stop)) if consecutive is None else consecutive
            for position, row in enumerate(source.gather_rows(rows), first):
                lengths[:, position] = [_length_of(row[leaf], call) for leaf in leaves]
            if time.monotonic() - reported_at > _REPORT_SECONDS:
                reported_at = time.monotonic()
                _log.info("%s has read the lengths of %d of %d rows", call, stop, count)
    return lengths


def _length_of(value: Array, call: str) -> int:
    if value.ndim == 0:
        raise PipelineError(f"{call} found the single value {value!r} in a row. Pass rows with one dimension.")
    return len(value)
