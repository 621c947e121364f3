"""Reads fields of all rows, for `filter`, `split(by=)`, `sample(balance=)` and `window(within=)`.

These methods read stored rows: rows as the source has them, before any transform.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.choices import consecutive_start
from forebay.order.orders import require_length
from forebay.pipeline.description import PipelineDescription
from forebay.pipeline.index_folder import RowPass, recall_or_read
from forebay.pipeline.row_choices import check_labels
from forebay.sources.row_filter import RowFilter, find_leaf

__all__ = ["filter_mask", "read_labels", "refuse_transforms"]

P = TypeVar("P", bound=PipelineDescription)

# Bytes of a chunk: the rows that Forebay reads at a time. All leaves except ragged ones count, because a source may
# have to read all leaves.
CHUNK_NBYTES = 8 << 20


def filter_mask(pipeline: P, row_filter: RowFilter) -> tuple[Array, P]:
    """Return a mask of the positions that the filter keeps, and the pipeline.

    With `index()`, the returned pipeline has a decision that says whether the rows were read.
    """
    assert pipeline.order is not None
    count = require_length(pipeline.order, "filter")

    def read() -> Array:
        mask = np.empty(count, dtype=bool)
        for start, columns in _read_chunks(pipeline, row_filter.leaves, "filter()"):
            mask[start : start + len(columns[0])] = row_filter.mask(columns)
        return mask

    result, function = ("mask", row_filter.fields), row_filter.function
    row_pass = RowPass(str(row_filter), pipeline.order, result, np.dtype(bool), (count,), function)
    return recall_or_read(pipeline, row_pass, read)


def read_labels(pipeline: P, labels: Any, call: str) -> tuple[Array, P]:
    """Return one label for each position of a fixed order, and the pipeline.

    `labels` is the name of a field, or the labels themselves. `call` is the user's call, such as "split(by=...)". With
    `index()`, the returned pipeline has a decision that says whether the rows were read.
    """
    assert pipeline.order is not None
    length = require_length(pipeline.order, call)
    if not isinstance(labels, str):
        return check_labels(labels, length, call), pipeline
    if pipeline.transforms and labels not in pipeline.structure.paths:
        raise PipelineError(
            f"{call} reads the stored rows, but no stored field is named {labels!r}: {pipeline.transforms[0]} changes "
            f"rows later. Pass an array with one label for each row, or add {labels!r} to the source, such as "
            f"from_arrays({{'path': paths, {labels!r}: labels}})."
        )
    leaf = find_leaf(pipeline.structure, labels, call.partition("(")[0])
    spec = pipeline.specs[leaf]
    if spec.shape != ():
        raise PipelineError(f"{call} needs one value for each row, but {labels!r} has {spec}. Choose another field.")

    def read() -> Array:
        column = spec.empty(length)
        for start, (values,) in _read_chunks(pipeline, (leaf,), call):
            column[start : start + len(values)] = values
        return column

    row_pass = RowPass(call, pipeline.order, ("column", leaf), spec.dtype, (length,))
    return recall_or_read(pipeline, row_pass, read)


def _read_chunks(pipeline: PipelineDescription, leaves: Sequence[int], call: str) -> Iterator[tuple[int, list[Array]]]:
    """Read the rows in chunks; yield the first position and the leaves of each chunk."""
    source, order = pipeline.source, pipeline.order
    assert isinstance(source, AbstractSource)
    assert order is not None
    refuse_transforms(pipeline, call)
    for leaf in leaves:
        if pipeline.specs[leaf].ragged:
            name = pipeline.structure.paths[leaf]
            raise PipelineError(f"{call}: {name!r} differs in length between rows. Choose fields of one shape.")
    length, first_row = require_length(order, call), consecutive_start(order)
    chunk_rows = max(1, CHUNK_NBYTES // max(1, sum(spec.nbytes for spec in pipeline.specs if not spec.ragged)))
    with ProgressLine(f"{call} reads {length:,} rows", length) as progress:
        for progress.done in range(0, length, chunk_rows):
            start, stop = progress.done, min(progress.done + chunk_rows, length)
            rows: Rows = (
                slice(first_row + start, first_row + stop)
                if first_row is not None
                else order.rows(0, np.arange(start, stop, dtype=np.int64)).astype(np.intp, copy=False)
            )
            yield start, source.gather_leaves(leaves, rows)


def refuse_transforms(pipeline: PipelineDescription, call: str) -> None:
    """Raise PipelineError if the pipeline has transforms. `call` is the user's call, such as "filter()"."""
    if pipeline.transforms:
        raise PipelineError(
            f"{call} reads the stored rows, but {pipeline.transforms[0]} comes before it and would change them. Call "
            f"{call.partition('(')[0]}() first."
        )
