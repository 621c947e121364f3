"""Validation of pipelines, feed options and states."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from forebay.core.handoff import BatchSplit
from forebay.core.source import AbstractSource
from forebay.core.spec import ArraySpec, Structure
from forebay.errors import PipelineError, StateError
from forebay.order.schedule import RANDOM_VERSION, Cursor
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.ranks import Rank, validate_equal_steps
from forebay.pipeline.target import Target
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.generator import RowStream
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.ops import Map
from forebay.transforms.padding import RaggedFields

__all__ = [
    "validate_cursor",
    "validate_pipeline",
    "validate_ragged_fields",
    "validate_target",
    "warn_of_other_random_numbers",
    "with_ragged_specs",
]


def validate_pipeline(pipeline: Pipeline, resident: str) -> None:
    """Raise PipelineError if the pipeline or an option is invalid for every target."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise PipelineError(
            "this Python runs without the global interpreter lock, and Forebay counts references to know when memory "
            "is free, which needs the lock. Set PYTHON_GIL=1, or use a Python that is not free-threaded."
        )
    if pipeline.batching is None and not isinstance(pipeline.source, BatchStream):
        raise PipelineError("the pipeline has no batch size. Call batch(n) before feed().")
    if isinstance(pipeline.rank, Rank) and pipeline.rank.count > 1:
        _validate_rank(pipeline, pipeline.rank)
    if pipeline.indexed and pipeline.schedule.batches == 0:
        schedule, batching = pipeline.schedule, pipeline.batching
        if batching is not None and batching.tokens is not None:
            raise PipelineError(
                f"there is nothing to feed: {schedule.shard_count} shards have too few batches "
                f"({schedule.pass_rows}). Use fewer tokens or fewer shards."
            )
        raise PipelineError(
            f"there is nothing to feed: {schedule.pass_rows} rows over {schedule.shard_count} shards give shard "
            f"{schedule.shard_index} not a single batch of {schedule.batch_rows}. Use smaller batches or fewer shards."
        )
    if pipeline.padded:
        _validate_padded_images(pipeline)
    if resident not in ("auto", "always", "never"):
        raise PipelineError(f"resident={resident!r} is unknown: choose 'auto', 'always' or 'never'.")


def validate_target(pipeline: Pipeline, target: Target, resident: str, device_nbytes: int | None) -> None:
    """Raise PipelineError if batches cannot be divided among the devices, or if a CPU target lacks a device."""
    if target.split is not None:
        _validate_split(pipeline, target.split, Cursor())
    if target.device_handoff is not None:
        return
    if isinstance(pipeline.source, AbstractSource) and pipeline.source.encoded_images is not None:
        raise PipelineError(
            f"decoder='nvjpeg' decodes images on a GPU, but the batches go to {target.place}. Pass decoder='auto'."
        )
    if resident == "always":
        raise PipelineError(
            f"resident='always' needs a GPU to keep rows on, but the batches go to {target.place}. Use resident='auto'."
        )
    if device_nbytes is not None:
        raise PipelineError(f"device_bytes= is a budget for a GPU, but the batches go to {target.place}. Leave it out.")
    on_device = [transform for transform in pipeline.transforms if transform.where == "device"]
    if on_device:
        raise PipelineError(
            f"{on_device[0]} has where='device', but the batches go to {target.place}. Use where='thread', 'process' "
            "or 'ray'."
        )


def with_ragged_specs(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline, with variable lengths in the specs of a padded or ragged stream.

    Raise PipelineError if rows may differ in length but are neither padded nor ragged, or if such a stream does not
    come directly from a generator.
    """
    if not pipeline.padded and any(spec.ragged for spec in pipeline.specs):
        raise PipelineError(
            f"rows may differ in length ({_describe_fields(pipeline)}). Choose a value to pad them with, "
            "such as batch(n, pad=0), or use batch(n, ragged=True)."
        )
    if not pipeline.padded or pipeline.indexed:
        return pipeline
    if not isinstance(pipeline.source, RowStream):
        raise PipelineError(
            "padding needs rows directly from the generator, and so do ragged batches. Take, repeat and shuffle rows "
            "inside the generator, or call take() and repeat() after batch()."
        )
    specs = pipeline.input_specs if isinstance(pipeline.row_stacking, RaggedFields) else None
    return replace(pipeline, source=pipeline.source.with_ragged_specs(specs))


def validate_ragged_fields(pipeline: Pipeline, stages: Sequence[tuple[Sequence[ArraySpec], Structure]]) -> None:
    """Raise PipelineError unless the rows of a ragged pipeline have the ragged fields, before or after a transform.

    `stages` has the specs before and after each transform of the host. A map on batches may make dense rows.
    """
    fields = pipeline.batching.ragged if pipeline.batching is not None else None
    if fields is None:
        return
    pairs = [pair for specs, structure in stages for pair in zip(structure.paths, specs, strict=True)]
    found = {name: spec for name, spec in pairs if spec.ragged}
    known = ", ".join(f"{name} {spec}" for name, spec in dict(pairs).items())
    missing = sorted((fields.names or set()) - set(found))
    if missing:
        raise PipelineError(
            f"batch(ragged=...) names {missing[0]!r}, but no such field has a variable length ({known}). Correct the "
            "name."
        )
    if not found:
        raise PipelineError(f"batch(ragged=True): all rows have one shape ({known}). Leave out ragged=.")
    for name, spec in found.items():
        if None in spec.shape[1:]:
            raise PipelineError(
                f"{name!r} is {spec}, which has several variable lengths. Ragged rows have one, the first. Use pad=."
            )


def validate_cursor(pipeline: Pipeline, cursor: Cursor, split: BatchSplit | None) -> None:
    """Raise an error if a pipeline of indexed rows cannot continue at this cursor."""
    if not pipeline.indexed:
        return
    if split is not None:
        _validate_split(pipeline, split, cursor)
    pass_rows, unit = pipeline.schedule.pass_rows, _unit(pipeline)
    if cursor.position > pass_rows:
        raise StateError(
            f"the state is damaged: position {cursor.position} is beyond the {pass_rows} {unit} of a pass. Load "
            "another state."
        )
    if isinstance(pipeline.rank, Rank):
        validate_equal_steps(pipeline.rank, pipeline.schedule, cursor.position, unit=_unit(pipeline))


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


def _validate_split(pipeline: Pipeline, split: BatchSplit, cursor: Cursor) -> None:
    """Raise PipelineError if a batch from the cursor on cannot be divided among the devices.

    The rows of ready-made batches and the length of streams are unknown; the hand-off checks them.
    """
    _validate_shard(pipeline, split)
    if pipeline.batching is None:
        return
    rows, parts = pipeline.batching.rows, split.parts
    if rows % parts:
        raise PipelineError(
            f"batch({rows}) cannot be divided into {parts} equal parts for the devices of this process. Choose a "
            f"number of rows that is divisible by {parts}, such as batch({-(-rows // parts) * parts})."
        )
    last_rows = pipeline.schedule.incomplete_step_rows(cursor)
    if last_rows % (parts * pipeline.shard_count):
        raise PipelineError(
            f"the last step has {last_rows} rows, which cannot be divided into {parts * pipeline.shard_count} equal "
            f"parts for the devices. Leave that step out with batch({rows}, drop_remainder=True), or choose another "
            "batch size."
        )


def _validate_shard(pipeline: Pipeline, split: BatchSplit) -> None:
    """Raise PipelineError if this process would read the rows of another one.

    One shard of one means that the data is already divided among the processes.
    """
    shard = pipeline.shard_index, pipeline.shard_count
    if split.processes == 1 or shard in ((split.index, split.count), (0, 1)):
        return
    if split.count == 1:
        raise PipelineError(
            f"the sharding gives all {split.processes} processes the same rows, but this one reads shard {shard[0]} of "
            f"{shard[1]}. Name a mesh axis for the first axis, such as PartitionSpec('data'), or use shard(0, 1)."
        )
    raise PipelineError(
        f"device= expects part {split.index} of {split.count} of the rows from this process, but it reads shard "
        f"{shard[0]} of {shard[1]}. Use shard({split.index}, {split.count})."
    )


def _validate_padded_images(pipeline: Pipeline) -> None:
    """Raise PipelineError if an augmentation would depend on the padding, and so on the other rows of the batch."""
    for transform in pipeline.transforms:
        if isinstance(transform, Augmentation) and transform.changes_with_size:
            raise PipelineError(
                f"{transform} needs images of the same size, but batch(pad=...) and batch(ragged=...) take rows of "
                "different sizes. Resize the images first, for example with from_images(size=...), and leave out pad= "
                "and ragged=."
            )


def _validate_rank(pipeline: Pipeline, rank: Rank) -> None:
    """Raise PipelineError if ranks may take different numbers of steps. Some ranks would then wait forever."""
    if pipeline.indexed:
        validate_equal_steps(rank, pipeline.schedule, position=0, unit=_unit(pipeline))
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


def _unit(pipeline: Pipeline) -> str:
    """Return what a position of the schedule counts."""
    return "batches" if pipeline.batching is not None and pipeline.batching.tokens is not None else "rows"


def _describe_fields(pipeline: Pipeline) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in zip(pipeline.structure.paths, pipeline.specs, strict=True))
