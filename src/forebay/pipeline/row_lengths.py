"""The lengths of rows, for `batch(tokens=)` and `pack`, which arrange rows by length.

The user passes the lengths, the source knows them, or Forebay reads all rows to find them.
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

_MAX_LENGTH = 2**63 - 1  # largest length of a row that an int64 can store
_ROWS_AT_ONCE = 128  # rows that Forebay has in memory at a time while it reads all rows
_REPORT_SECONDS = 10.0  # time between two log messages while Forebay reads all rows

_log = logging.getLogger(__name__)


def check_lengths(lengths: Any, count: int, call: str) -> Array:
    """Return the user's lengths as an array, or raise PipelineError if they are invalid.

    `count` is the number of rows. `call` is the user's call, for the error message.
    """
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
    """Return the row length at each position of a fixed order, and the pipeline.

    `lengths` is the argument of `batch()`: None, names of fields, or the lengths themselves. If it names several
    fields, the length of a row is that of its longest named field. With None, it is that of its longest field, among
    those whose length varies between rows, if there are any.

    With `index()`, the returned pipeline may have a new decision: see `read_lengths`.
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
    """Return the row lengths of each leaf by position of an order, and the pipeline.

    The length of a row is that of its first dimension. Ask the source. If it does not know the lengths of all these
    leaves, look in the folder of `index()`. If they are not there, read all rows once. If the pipeline has such a
    folder, the returned pipeline has a decision that says what happened.
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
    """Return the row numbers that a fixed order has at these positions."""
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
    """Return the row lengths of a leaf; None if the source does not know them."""
    source, spec = pipeline.source, pipeline.specs[leaf]
    assert isinstance(source, AbstractSource)
    if spec.shape[0] is not None and not source.infers_specs:
        return np.broadcast_to(np.int64(spec.shape[0]), (len(source),))
    return source.row_lengths(leaf)


def _scan_lengths(pipeline: PipelineDescription, order: Order, leaves: Sequence[int], call: str) -> Array:
    """Read all rows once, and return an array of the lengths by leaf and position."""
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
