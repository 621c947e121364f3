"""The lengths of rows, for pipeline methods that arrange rows by length."""

import logging
import time
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.choices import consecutive_start
from forebay.order.orders import Order, require_length
from forebay.pipeline.description import PipelineDescription
from forebay.sources.arrays import ArraySource

__all__ = ["check_lengths", "read_lengths", "rows_at"]

_CHUNK_ROWS = 128  # rows that are in memory at a time, if the source cannot tell the lengths
_REPORT_SECONDS = 10.0  # between two messages about the progress of a pass over all rows

_log = logging.getLogger(__name__)


def check_lengths(lengths: Any, count: int, call: str) -> Array:
    """Return the lengths that the user gave, one for each row, or raise PipelineError."""
    array = np.asarray(lengths)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise PipelineError(f"{call} got {array.dtype}{list(array.shape)}. Pass one whole number for each row.")
    if len(array) != count:
        raise PipelineError(f"{call} got {len(array)} lengths for {count} rows. Pass one for each row.")
    if len(array) and array.min() < 0:
        raise PipelineError(f"{call} got the length {array.min()} for row {int(array.argmin())}. Pass lengths from 0.")
    return array


def read_lengths(pipeline: PipelineDescription, leaf: int, call: str) -> Array:
    """Return the first length of a leaf at each position of a fixed order.

    Sources that know their lengths are not read. Others are read once.
    """
    source, order = pipeline.source, pipeline.order
    assert isinstance(source, AbstractSource)
    assert order is not None
    count = require_length(order, call)
    if isinstance(source, ArraySource):
        return np.full(count, source.specs[leaf].shape[0], np.uint32)
    lengths = source.row_lengths(leaf)
    if lengths is None:
        return _scan_lengths(source, order, leaf, call)
    start = consecutive_start(order)
    if start is not None:
        return lengths[start : start + count]
    return np.asarray(lengths[rows_at(order, np.arange(count, dtype=np.int64))])


def rows_at(order: Order, positions: Array) -> Array:
    """Return the row numbers at positions of a fixed order."""
    return order.rows(0, positions.astype(np.int64, copy=False)).astype(np.intp, copy=False)


def _scan_lengths(source: AbstractSource, order: Order, leaf: int, call: str) -> Array:
    """Read all rows once, in chunks."""
    count, start = require_length(order, call), consecutive_start(order)
    lengths, reported_at = np.empty(count, np.uint32), time.monotonic()
    for first in range(0, count, _CHUNK_ROWS):
        stop = min(first + _CHUNK_ROWS, count)
        rows: Rows = slice(start + first, start + stop) if start is not None else rows_at(order, np.arange(first, stop))
        lengths[first:stop] = [_length_of(row[leaf], call) for row in source.gather_rows(rows)]
        if time.monotonic() - reported_at > _REPORT_SECONDS:
            reported_at = time.monotonic()
            _log.info("%s has read the lengths of %d of %d rows", call, stop, count)
    return lengths


def _length_of(value: Array, call: str) -> int:
    if value.ndim == 0:
        raise PipelineError(f"{call} found the single value {value!r} in a row. Pass rows with one dimension.")
    return len(value)
