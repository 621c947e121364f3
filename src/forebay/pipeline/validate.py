"""Validation of pipelines, feed options and states."""

import operator
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
    "validate_epoch",
    "validate_pipeline",
    "validate_ragged_fields",
    "validate_ragged_split",
    "validate_target",
    "warn_if_random_numbers_differ",
    "with_ragged_specs",
]


def validate_pipeline(pipeline: Pipeline, resident: str) -> None:
    """Raise PipelineError if the pipeline or an option is invalid for every target."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise PipelineError(
            "this Python runs without the global interpreter lock, but Forebay needs the lock: it counts references to "
            "know when memory is free. Set PYTHON_GIL=1, or use a Python that is not free-threaded."
        )
    if pipeline.batching is None and not isinstance(pipeline.source, BatchStream):
        raise PipelineError("the pipeline has no batch size. Call batch(n) before feed().")
    if isinstance(pipeline.rank, Rank) and pipeline.rank.count > 1:
        _validate_rank(pipeline, pipeline.rank)
    if pipeline.indexed and pipeline.schedule.batches == 0:
        schedule, batching = pipeline.schedule, pipeline.batching
        if batching is not None and batching.tokens is not None:
            raise PipelineError(
                f"there is nothing to feed: the number of batches ({schedule.pass_rows}) is too small for "
                f"{schedule.shard_count} shards. Use fewer tokens per batch or fewer shards."
            )
        raise PipelineError(
            f"there is nothing to feed: if {schedule.pass_rows} rows are divided among {schedule.shard_count} shards, "
            f"shard {schedule.shard_index} gets no batch of {schedule.batch_rows}. Use smaller batches or fewer shards."
        )
    if pipeline.padded:
        _validate_padded_images(pipeline)
        _validate_padded_replacements(pipeline)
    if resident not in ("auto", "always", "never"):
        raise PipelineError(f"resident={resident!r} is unknown: choose 'auto', 'always' or 'never'.")


def validate_target(pipeline: Pipeline, target: Target, resident: str, device_nbytes: int | None) -> None:
    """Raise PipelineError if the target does not suit the pipeline or the options.

    If the target has several devices, it must be possible to divide each batch among them. If the batches do not go to
    a GPU, no option, transform or decoder may need a GPU.
    """
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
    if on_device and not target.runs_device_transforms:
        raise PipelineError(
            f"{on_device[0]} has where='device', but the batches go to {target.place}, where {target.hand_off.name} "
            "cannot run it. Use where='thread', 'process' or 'ray'."
        )


def with_ragged_specs(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline; for a padded or ragged stream, with variable lengths in the specs.

    Raise PipelineError if rows may differ in length, but the batches are neither padded nor ragged. Raise it also for
    padded or ragged batches of a stream unless its source is a generator without further operations.
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
            "padded and ragged batches need rows directly from the generator, but the pipeline changes their order or "
            "number first. Take, repeat and shuffle rows inside the generator, or call take() and repeat() after "
            "batch()."
        )
    specs = pipeline.input_specs if isinstance(pipeline.row_stacking, RaggedFields) else None
    return replace(pipeline, source=pipeline.source.with_ragged_specs(specs))


def validate_ragged_fields(pipeline: Pipeline, stages: Sequence[tuple[Sequence[ArraySpec], Structure]]) -> None:
    """Raise PipelineError if `batch(ragged=...)` does not match the fields of the rows.

    `stages` has the specs and structure before the host's first transform, and those after each transform. A field
    needs to be ragged in only one stage, because a map on batches may make its rows dense.
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
                f"{name!r} is {spec}, which has several variable lengths. Ragged rows may differ only in the length of "
                "their first axis. Use pad= instead of ragged=."
            )


def validate_ragged_split(split: BatchSplit | None, specs: Sequence[ArraySpec], structure: Structure) -> None:
    """Raise PipelineError if the feed would have to divide ragged rows among devices."""
    ragged = [name for name, spec in zip(structure.paths, specs, strict=True) if spec.ragged]
    if split is not None and split.parts > 1 and ragged:
        raise PipelineError(
            f"the values of {ragged[0]!r} cannot be divided into {split.parts} parts for the devices, because their "
            "rows differ in length. Use batch(pad=...), or one feed for each device."
        )


def validate_cursor(pipeline: Pipeline, cursor: Cursor, split: BatchSplit | None) -> None:
    """Raise an error if a pipeline of indexed rows cannot continue at this cursor.

    `split` says how a batch is divided among several devices; None for one device.
    """
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


def validate_epoch(epoch: Any) -> int:
    """Return `epoch` as an int. Raise PipelineError if it is no number of an epoch."""
    try:
        number = operator.index(epoch)
    except TypeError:
        number = -1
    if number < 0:
        raise PipelineError(f"set_epoch({epoch!r}) is not the number of an epoch. Pass a whole number from 0 on.")
    return number


def warn_if_random_numbers_differ(pipeline: Pipeline, state: dict[str, Any]) -> None:
    """Warn if a map drew other random numbers in the version that wrote the state."""
    drawing = [transform for transform in pipeline.transforms if isinstance(transform, Map) and transform.draws_by_row]
    if drawing and state.get("random", 1) != RANDOM_VERSION:
        warnings.warn(
            f"another version of Forebay wrote the state. In that version, {drawing[0]} draws different random "
            "numbers. The rows are the same, but from here on the map returns different values. To get the values of "
            "that version, finish the run with it; otherwise ignore this warning.",
            UserWarning,
            stacklevel=3,
        )


def _validate_split(pipeline: Pipeline, split: BatchSplit, cursor: Cursor) -> None:
    """Raise PipelineError if a batch from the cursor on cannot be divided among the devices.

    The sizes of ready-made batches, and of the last batch of a stream, are unknown here; the hand-off checks them.
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
    """Raise PipelineError if this process would read rows that belong to another process.

    `shard(0, 1)` is always valid, because the user may have divided the data already, or may want all processes to read
    the same rows.
    """
    shard = pipeline.shard_index, pipeline.shard_count
    if split.processes == 1 or shard in ((split.index, split.count), (0, 1)):
        return
    if split.count == 1:
        raise PipelineError(
            f"the sharding gives all {split.processes} processes the same rows, but this one reads shard {shard[0]} of "
            f"{shard[1]}. To divide the rows, name a mesh axis first in the spec, such as PartitionSpec('data'). "
            "To give all processes the same rows, use shard(0, 1)."
        )
    raise PipelineError(
        f"this process reads shard {shard[0]} of {shard[1]}, but device= expects shard {split.index} of {split.count} "
        f"from it. Use shard({split.index}, {split.count})."
    )


def _validate_padded_images(pipeline: Pipeline) -> None:
    """Raise PipelineError if the result of an augmentation would depend on the padding.

    The padding depends on the other rows of the batch, so the result for an image would change with them.
    """
    for transform in pipeline.transforms:
        if isinstance(transform, Augmentation) and transform.changes_with_size:
            raise PipelineError(
                f"{transform} needs images of the same size, but batch(pad=...) and batch(ragged=...) take rows of "
                "different sizes. Resize the images first, for example with from_images(size=...), and leave out pad= "
                "and ragged=."
            )


def _validate_padded_replacements(pipeline: Pipeline) -> None:
    """Raise PipelineError if a source replaces unreadable rows, but rows may differ in length."""
    source = pipeline.source
    if not isinstance(source, AbstractSource) or source.error_limit is None:
        return
    if source.infers_specs or any(spec.ragged for spec in source.specs):
        raise PipelineError(
            f"{source.error_limit.name}(on_error='skip') replaces rows of one shape, but other fields may "
            f"differ in length ({_describe_fields(pipeline)}). Leave out on_error=, or zip fields of one shape."
        )


def _validate_rank(pipeline: Pipeline, rank: Rank) -> None:
    """Raise PipelineError if ranks may take different numbers of steps.

    Ranks with more steps would wait forever for the others.
    """
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
            f"a stream may end with rows for only some of {rank.count} ranks, and these would wait for the others. "
            "Use batch(..., drop_remainder=True), which leaves out that last step."
        )


def _unit(pipeline: Pipeline) -> str:
    """Return the unit of positions in the schedule, for error messages."""
    return "batches" if pipeline.batching is not None and pipeline.batching.tokens is not None else "rows"


def _describe_fields(pipeline: Pipeline) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in zip(pipeline.structure.paths, pipeline.specs, strict=True))
