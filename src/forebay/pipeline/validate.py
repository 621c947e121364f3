"""Validation of pipelines, feed options and states."""

import warnings
from dataclasses import replace
from typing import Any

from forebay.core.source import AbstractSource
from forebay.errors import PipelineError, StateError
from forebay.order.schedule import RANDOM_VERSION, Cursor
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.ranks import Rank, validate_equal_steps
from forebay.pipeline.target import Target
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.generator import RowStream
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.ops import Map

__all__ = [
    "validate_cursor",
    "validate_pipeline",
    "validate_target",
    "warn_of_other_random_numbers",
    "with_ragged_specs",
]


def validate_pipeline(pipeline: Pipeline, resident: str) -> None:
    """Raise PipelineError if the pipeline or an option is invalid for every target."""
    if pipeline.batching is None and not isinstance(pipeline.source, BatchStream):
        raise PipelineError("the pipeline has no batch size. Call batch(n) before feed().")
    if isinstance(pipeline.rank, Rank) and pipeline.rank.count > 1:
        _validate_rank(pipeline, pipeline.rank)
    if pipeline.indexed and pipeline.schedule.batches == 0:
        schedule = pipeline.schedule
        raise PipelineError(
            f"there is nothing to feed: {schedule.pass_rows} rows over {schedule.shard_count} shards give shard "
            f"{schedule.shard_index} not a single batch of {schedule.batch_rows}. Use smaller batches or fewer shards."
        )
    if pipeline.padded:
        _validate_padded_images(pipeline)
    if resident not in ("auto", "always", "never"):
        raise PipelineError(f"resident={resident!r} is unknown: choose 'auto', 'always' or 'never'.")


def validate_target(pipeline: Pipeline, target: Target, resident: str, device_nbytes: int | None) -> None:
    """For a CPU target, raise PipelineError if an option or a transform needs a device."""
    if target.device_handoff is not None:
        return
    if isinstance(pipeline.source, AbstractSource) and pipeline.source.encoded_images is not None:
        raise PipelineError(
            "decoder='nvimgcodec' decodes images on a GPU, but the batches go to the CPU. Pass decoder='auto'."
        )
    if resident == "always":
        raise PipelineError(
            "resident='always' needs a device to keep rows on, but the batches go to the CPU. Use resident='auto'."
        )
    if device_nbytes is not None:
        raise PipelineError("device_bytes= is a budget for a device, but the batches go to the CPU. Leave it out.")
    on_device = [transform for transform in pipeline.transforms if transform.where == "device"]
    if on_device:
        raise PipelineError(
            f"{on_device[0]} has where='device', but the batches go to the CPU. Use where='thread', 'process' or 'ray'."
        )


def with_ragged_specs(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline, with variable lengths in the specs of a padded stream.

    Raise PipelineError if rows may differ in length but are not padded, or if a padded stream does not come directly
    from a generator.
    """
    if not pipeline.padded and any(spec.ragged for spec in pipeline.specs):
        raise PipelineError(
            f"rows may differ in length ({_describe_fields(pipeline)}). Choose a value to pad them with, "
            "such as batch(n, pad=0)."
        )
    if not pipeline.padded or pipeline.indexed:
        return pipeline
    if not isinstance(pipeline.source, RowStream):
        raise PipelineError(
            "padding needs rows directly from the generator. Take, repeat and shuffle rows inside the generator, or "
            "call take() and repeat() after batch()."
        )
    return replace(pipeline, source=pipeline.source.with_ragged_specs())


def validate_cursor(pipeline: Pipeline, cursor: Cursor) -> None:
    """Raise an error if a pipeline of indexed rows cannot continue at this cursor."""
    if not pipeline.indexed:
        return
    pass_rows = pipeline.schedule.pass_rows
    if cursor.position > pass_rows:
        raise StateError(
            f"the state is damaged: position {cursor.position} is beyond the {pass_rows} rows of a pass. Load another "
            "state."
        )
    if isinstance(pipeline.rank, Rank):
        validate_equal_steps(pipeline.rank, pipeline.schedule, cursor.position)


def warn_of_other_random_numbers(pipeline: Pipeline, state: dict[str, Any]) -> None:
    """Warn if a map draws other random numbers than the version of Forebay that wrote the state."""
    drawing = [transform for transform in pipeline.transforms if isinstance(transform, Map) and transform.draws_by_row]
    if drawing and state.get("random", 1) != RANDOM_VERSION:
        warnings.warn(
            f"the state was written by another version of Forebay, in which {drawing[0]} draws other random numbers. "
            "The rows are the same, but from here on the map returns other values than that version. To get its "
            "values, finish the run with that version; otherwise ignore this warning.",
            UserWarning,
            stacklevel=3,
        )


def _validate_padded_images(pipeline: Pipeline) -> None:
    """Raise PipelineError if an augmentation would depend on the padding, and so on the other rows of the batch."""
    for transform in pipeline.transforms:
        if isinstance(transform, Augmentation) and transform.changes_with_size:
            raise PipelineError(
                f"{transform} needs images of the same size, but batch(pad=...) pads each batch to its largest row. "
                "Resize the images first, for example with from_images(size=...), and leave out pad=."
            )


def _validate_rank(pipeline: Pipeline, rank: Rank) -> None:
    """Raise PipelineError if ranks may take different numbers of steps. Some ranks would then wait forever."""
    if pipeline.indexed:
        validate_equal_steps(rank, pipeline.schedule, position=0)
    elif pipeline.batching is None:
        raise PipelineError(
            "shard('auto') cannot divide ready-made batches: their number may differ between the "
            f"{rank.count} ranks. Let the loader of each rank make its own batches and use shard(0, 1), or use "
            "shard(index, count)."
        )
    elif not pipeline.batching.drop_remainder:
        raise PipelineError(
            f"a stream may end with rows for only some of {rank.count} ranks, and the others would wait. "
            "Use batch(..., drop_remainder=True), which leaves that step out."
        )


def _describe_fields(pipeline: Pipeline) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in zip(pipeline.structure.paths, pipeline.specs, strict=True))
