"""`repr` and the notebook card of a pipeline."""

import re
from collections.abc import Iterator

from forebay.core.decision import Decision
from forebay.order.length_buckets import BucketedBatches
from forebay.pipeline.card import fit_lines, list_fields, render_card
from forebay.pipeline.description import Batching, PipelineDescription
from forebay.pipeline.order_decision import order_decision
from forebay.sources.streams.batches import BatchStream

__all__ = ["pipeline_card", "pipeline_repr"]

_PLACES = {"thread": "worker threads", "process": "worker processes", "ray": "Ray workers", "device": "the device"}


def pipeline_repr(pipeline: PipelineDescription) -> str:
    """Return three lines: the source, its fields, and what the pipeline does with the rows."""
    source, *steps = _describe_parts(pipeline)
    steps.sort(key=lambda step: step.name == "transform")  # transforms come last, because `fit_lines` cuts long lines
    parts = ", ".join(f"{step.name} {step.choice}" for step in steps)
    return fit_lines([f"Pipeline: {source.choice}", f"  fields: {source.why}", f"  {parts}"])


def pipeline_card(pipeline: PipelineDescription) -> str:
    """Return a card with the source, the order, the transforms and the batches."""
    return render_card("Pipeline", "Start it with feed(), such as pipeline.feed('torch').", _describe_parts(pipeline))


def _describe_parts(pipeline: PipelineDescription) -> Iterator[Decision]:
    """Yield a decision for each part of a pipeline, beginning with the source."""
    yield Decision("source", _describe_source(pipeline), _describe_fields(pipeline))
    yield order_decision(pipeline)
    for transform in pipeline.transforms:
        yield Decision("transform", str(transform), _describe_place(transform.where))
    if pipeline.batching is not None:
        yield Decision("batch", *_describe_batching(pipeline.batching))
    if pipeline.rank == "auto" or pipeline.shard_count > 1:
        shard = "auto" if pipeline.rank == "auto" else f"{pipeline.shard_index} of {pipeline.shard_count}"
        yield Decision("shard", shard, "feed() finds the rank of this process" if shard == "auto" else "")


def _describe_source(pipeline: PipelineDescription) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(pipeline.source).__name__.strip("_")).lower()
    place = f" {pipeline.file_recipe}" if pipeline.file_recipe is not None else ""
    order = pipeline.order
    rows = order.inner if isinstance(order, BucketedBatches) else order  # a position of `BucketedBatches` is a batch
    length = None if rows is None else rows.length
    return f"{words}{place}" if length is None else f"{words}{place}, {length:,} rows"


def _describe_fields(pipeline: PipelineDescription) -> str:
    """Return the names, shapes and dtypes of the fields of a row.

    For ready-made batches, say when they are known: Forebay would have to read a batch to find them.
    """
    if isinstance(pipeline.source, BatchStream):
        return "known when a feed starts"
    return list_fields(pipeline.structure.paths, pipeline.specs)


def _describe_place(where: str) -> str:
    return f"runs in {_PLACES[where]}" if where in _PLACES else "runs on the host or on the device"


def _describe_batching(batching: Batching) -> tuple[str, str]:
    """Return the size of a batch, and notes about incomplete batches and unequal rows."""
    size = f"{batching.rows:,} rows" if batching.tokens is None else f"at most {batching.tokens:,} elements"
    notes = ["an incomplete last batch is dropped"] if batching.drop_remainder else []
    notes += ["rows are padded"] if batching.pad is not None else []
    notes += ["rows keep their lengths"] if batching.ragged is not None else []
    notes += ["rows stay sparse"] if batching.sparse else []
    return size, "; ".join(notes)
