"""Inference of the specs after each transform: one batch runs through the transforms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.core.skipped_rows import RowRepair, gather_readable
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import SourceError
from forebay.order.epoch_views import find_source_row
from forebay.order.orders import Order
from forebay.order.permutation import Positions
from forebay.pipeline.description import PipelineDescription
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Map, Transform, apply_all
from forebay.transforms.padding import RaggedFields, RowList, Unpadded, pad_rows

__all__ = ["TransformSpecs", "infer_specs", "padded_transforms"]

MAX_SHOWN_ROWS = 8  # row numbers of the first batch that an error message lists
MAX_SAMPLE_TRIES = 100  # most batches that Forebay reads to find a batch with at least one readable row


@dataclass(frozen=True, slots=True)
class TransformSpecs:
    """The specs before and after each transform.

    `stages[i]` has the specs and the structure that transform `i` receives. The last stage is the output.
    """

    transforms: tuple[Transform, ...]  # the user's transforms, in which each map knows the structure of its result
    stages: tuple[tuple[tuple[ArraySpec, ...], Structure], ...]
    batch_rows: int  # rows per batch; for ready-made batches, rows of the first batch

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        """Specs after the last transform."""
        return self.stages[-1][0]

    @property
    def structure(self) -> Structure:
        """Structure after the last transform."""
        return self.stages[-1][1]


def infer_specs(pipeline: PipelineDescription, transforms: Sequence[Transform]) -> TransformSpecs:
    """Apply the transforms to one batch, and return the specs before and after each transform.

    If there is a map, this batch is the first one of the pipeline, because the result of a map may depend on the data.
    Without a map, the batch is one row of zeros. Raise SpecError if a result holds Python objects.
    """
    structure = pipeline.structure
    has_map = any(isinstance(transform, Map) for transform in transforms)
    leaves = _first_batch(pipeline) if has_map else _zero_row(pipeline)
    is_padded = pipeline.batching is not None and pipeline.batching.pad is not None
    stages, inferred = [(pipeline.input_specs, structure)], []
    for number, transform in enumerate(transforms):
        context = BatchContext.of_sample(len(leaves[0]))
        try:
            leaves, structure = apply_all([transform], leaves, structure, context, first=number)
        except Exception as error:
            if has_map:
                error.add_note(f"while the feed started, for {_describe_first_batch(pipeline, len(leaves[0]))}")
            raise
        inferred.append(replace(transform, structure=structure) if isinstance(transform, Map) else transform)
        stages.append((tuple(_spec_of(leaf, padded=is_padded) for leaf in leaves), structure))
    for spec, name in zip(stages[-1][0], structure.paths, strict=True):
        spec.check(name)
    return TransformSpecs(tuple(inferred), tuple(stages), _batch_rows(pipeline))


def padded_transforms(pipeline: PipelineDescription) -> tuple[Transform, ...]:
    """Return the transforms; maps on rows get the arguments `pad` and `ragged` of `batch()`.

    With `ragged`, each map on rows returns ragged rows. With `pad`, the last map on rows pads its results, and the
    earlier maps return rows without padding.
    """
    batching, last = pipeline.batching, pipeline.last_row_map
    pad = None if batching is None else batching.ragged or batching.pad
    earlier_pad = Unpadded() if isinstance(pipeline.row_stacking, Unpadded) else pad
    return tuple(
        replace(transform, pad=pad if index == last else earlier_pad)
        if isinstance(transform, Map) and transform.by_row
        else transform
        for index, transform in enumerate(pipeline.transforms)
    )


def _first_batch(pipeline: PipelineDescription) -> list[Any]:
    """Return the leaves of the first batch."""
    if isinstance(pipeline.source, BatchStream):
        return pipeline.source.sample()
    assert pipeline.batching is not None
    rows, names, pad = pipeline.batching.rows, pipeline.structure.paths, pipeline.row_stacking
    source = pipeline.source
    if not isinstance(source, AbstractSource):
        return pad_rows(source.sample(rows), names, pad)
    assert pipeline.order is not None
    is_one_position = pipeline.batching.tokens is not None  # with `tokens`, a position of the order is a whole batch
    count = 1 if is_one_position else min(rows, pipeline.order.length or rows)
    if pad is not None and source.error_limit is None:
        return pad_rows(source.gather_rows(_row_numbers(pipeline.order, 0, count)), names, pad)
    leaves = _first_readable_rows(source, pipeline.order, count)
    return leaves if pad is None else pad_rows(list(zip(*leaves, strict=True)), names, pad)


def _describe_first_batch(pipeline: PipelineDescription, count: int) -> str:
    """Return the name of the first batch with its row numbers, for an error message."""
    if pipeline.order is None or (pipeline.batching is not None and pipeline.batching.tokens is not None):
        return "the first batch"
    numbers = _row_numbers(pipeline.order, 0, min(count, MAX_SHOWN_ROWS)).tolist()
    shown = ", ".join(str(find_source_row(pipeline.order, row)) for row in numbers) + (
        ", ..." if count > len(numbers) else ""
    )
    return f"the first batch (rows {shown})"


def _first_readable_rows(source: AbstractSource, order: Order, count: int) -> list[Any]:
    """Return the leaves of the rows at the first `count` positions of the order.

    If the source skips unreadable rows, replace each by a good row. If all rows are unreadable, try the next `count`
    positions, and finally raise the first error.
    """
    tries = range(MAX_SAMPLE_TRIES)
    if order.length is not None:
        tries = range(min(MAX_SAMPLE_TRIES, order.length // count))
    first_error: SourceError | None = None
    for attempt in tries:
        numbers = _row_numbers(order, attempt * count, count)
        out = [spec.empty(len(numbers)) for spec in source.specs]
        repair = RowRepair.of(gather_readable(source, numbers, out), len(numbers), len(numbers))
        if repair.error is None:
            repair.apply(out)
            return out
        first_error = first_error or repair.error
    assert first_error is not None
    raise first_error


def _row_numbers(order: Order, start: int, count: int) -> Array:
    positions: Positions = np.arange(start, start + count, dtype=np.int64)
    return order.rows(0, positions).astype(np.intp)


def _zero_row(pipeline: PipelineDescription) -> list[Any]:
    """Return a batch of one row of zeros. A variable length is 1."""
    rows = [np.zeros(spec.batch_shape(1), spec.dtype) for spec in pipeline.specs]
    if not isinstance(pipeline.row_stacking, RaggedFields):
        return list(rows)
    return list(pad_rows([[row[0] for row in rows]], pipeline.structure.paths, pipeline.row_stacking))


def _spec_of(leaf: Any, *, padded: bool) -> ArraySpec:
    if isinstance(leaf, Ragged | RowList):
        return leaf.row_spec
    array = np.asarray(leaf)
    return ArraySpec((None,) * (array.ndim - 1) if padded else array.shape[1:], array.dtype)


def _batch_rows(pipeline: PipelineDescription) -> int:
    if isinstance(pipeline.source, BatchStream):
        return pipeline.source.first_batch_rows
    assert pipeline.batching is not None
    return pipeline.batching.rows
