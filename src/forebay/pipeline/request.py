"""`FeedRequest`: a pipeline with validated feed options, its target, and the input of the planner."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.handoff import HandOff, RaggedTarget
from forebay.core.source import AbstractSource, AbstractStream
from forebay.core.spec import parse_nbytes
from forebay.pipeline.device_request import (
    choose_image_decoder,
    decodes_on_device,
    device_input,
    output_specs,
    split_transforms,
    transforms_before_device_maps,
)
from forebay.pipeline.narrowing import narrow_as_framework
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.order_decision import order_decision
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import PlanInput
from forebay.pipeline.planner import GROUP_NBYTES
from forebay.pipeline.ranks import (
    Rank,
    detect_undivided_rank,
    rank_decision,
    undivided_decision,
    uneven_shards_decision,
)
from forebay.pipeline.ray_request import plan_ray_workers
from forebay.pipeline.sparse_request import SparseBatches, choose_sparse_transport, make_sparse_batches
from forebay.pipeline.spec_inference import TransformSpecs, infer_specs, padded_transforms
from forebay.pipeline.target import Target, resolve_target
from forebay.pipeline.validate import (
    validate_pipeline,
    validate_ragged_fields,
    validate_ragged_split,
    validate_target,
    with_ragged_specs,
)
from forebay.sources.direct.open_reader import plan_reads
from forebay.sources.direct.strategy import ReadPlan, ReadRequest
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.combinators import window_nbytes_of
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.ops import Transform

__all__ = ["FeedRequest", "resolve_request"]


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A pipeline with validated feed options."""

    pipeline: Pipeline
    target: Target
    specs: TransformSpecs
    plan_input: PlanInput
    sparse_batches: SparseBatches | None = None  # None if all leaves of a batch are dense


def resolve_request(pipeline: Pipeline, options: FeedOptions) -> FeedRequest:
    """Validate a pipeline and its options, and return the request with its plan input."""
    validate_pipeline(pipeline, options.resident)
    target = resolve_target(options.device, options.to)
    host_nbytes = parse_nbytes(options.host_bytes, "host_bytes")
    device_nbytes = None if options.device_bytes is None else parse_nbytes(options.device_bytes, "device_bytes")
    validate_target(pipeline, target, options.resident, device_nbytes)
    pipeline = with_ragged_specs(pipeline)
    pipeline, sparse_batches = make_sparse_batches(pipeline, target)
    pipeline, sparse_decisions = choose_sparse_transport(pipeline, target)
    host_specs, device_transforms = _split_transforms(pipeline, target)
    pipeline, decoder_decisions = choose_image_decoder(pipeline, target, host_specs.transforms)
    specs, narrowing_decisions = narrow_as_framework(pipeline, target, host_specs)
    source = pipeline.source
    device = device_input(pipeline, target, host_specs.transforms, options.resident, device_nbytes)
    validate_ragged_fields(pipeline, specs.stages)
    if _is_ragged(pipeline):
        validate_ragged_split(target.split, specs.specs, specs.structure)
    fixed_size = not pipeline.padded and not isinstance(source, BatchStream)
    cluster = plan_ray_workers(pipeline, specs.transforms, fixed_size=fixed_size)
    threads_read = (device is None or not device.extents) and (cluster is None or cluster.row_delivery == "sent")
    if sparse_batches is None:
        output = output_specs(specs, device_transforms, target.hand_off)
    else:
        output = sparse_batches.specs, sparse_batches.structure
    plan_input = PlanInput(
        framework=target.hand_off.name,
        engine=target.engine.name,
        alignment=target.engine.alignment,
        batch_rows=specs.batch_rows,
        batches=pipeline.epoch_batches,
        source_specs=tuple(pipeline.specs),
        specs=specs.specs,
        structure=specs.structure,
        transforms=specs.transforms,
        indexed=pipeline.indexed,
        row_by_row=source.row_by_row,
        fixed_size=fixed_size,
        shuffle_window_nbytes=window_nbytes_of(source) if isinstance(source, AbstractStream) else 0,
        host_nbytes=host_nbytes,
        decisions=(
            *_pipeline_decisions(pipeline),
            *_ragged_decisions(specs, target.hand_off, is_ragged=_is_ragged(pipeline)),
            *target.decisions,
            *sparse_decisions,
            *decoder_decisions,
            *narrowing_decisions,
        ),
        device=device,
        device_transforms=device_transforms,
        reading=_read_plan(pipeline, specs.batch_rows, host_nbytes) if threads_read and fixed_size else None,
        output=output,
        cluster=cluster,
        offsets_dtype=_offsets_dtype(pipeline, target.hand_off),
        tokens=pipeline.batching.tokens if pipeline.batching is not None else None,
        order_nbytes=pipeline.order.epoch_nbytes if pipeline.order is not None else 0,
        decodes_rows=isinstance(source, AbstractSource) and source.decodes_rows,
        decodes_on_device=device is not None and decodes_on_device(pipeline, specs.transforms),
        augmentation_nbytes=_augmentation_nbytes(specs),
        scratch_row_nbytes=source.scratch_row_nbytes if isinstance(source, AbstractSource) else 0,
        max_scratch_nbytes=source.max_scratch_nbytes if isinstance(source, AbstractSource) else 0,
        split=target.split,
    )
    return FeedRequest(pipeline, target, specs, plan_input, sparse_batches)


def _augmentation_nbytes(specs: TransformSpecs) -> int:
    """Return the bytes that augmentations in one thread need.

    The planner itself adds the rows before all transforms and the rows after them, so these do not count here.
    """
    buffers = [transform.buffer_nbytes for transform in specs.transforms if isinstance(transform, Augmentation)]
    if not buffers:
        return 0
    between = [sum(spec.nbytes for spec in stage) for stage, _ in specs.stages[1:-1]]
    values = max(spec.nbytes // max(1, spec.dtype.itemsize) for stage, _ in specs.stages for spec in stage)
    return specs.batch_rows * max(between, default=0) + values * max(buffers)


def _offsets_dtype(pipeline: Pipeline, hand_off: HandOff) -> np.dtype[Any] | None:
    """Return the dtype of the offsets of ragged rows; None if no field is ragged."""
    return hand_off.framework_dtype(np.dtype(np.int64)) if _is_ragged(pipeline) else None


def _is_ragged(pipeline: Pipeline) -> bool:
    return pipeline.batching is not None and pipeline.batching.ragged is not None


def _split_transforms(pipeline: Pipeline, target: Target) -> tuple[TransformSpecs, tuple[Transform, ...]]:
    """Return the host's transforms with their specs, and the device transforms."""
    transforms = padded_transforms(pipeline)
    if target.device_handoff is None:
        before = transforms_before_device_maps(transforms)
        return infer_specs(pipeline, before), transforms[len(before) :]
    return split_transforms(pipeline, transforms, target.hand_off)


def _read_plan(pipeline: Pipeline, batch_rows: int, host_nbytes: int) -> ReadPlan | None:
    """Return how worker threads read files; None if they read no rows from files."""
    if not isinstance(pipeline.source, AbstractSource) or pipeline.order is None:
        return None
    row_nbytes = sum(spec.nbytes for spec in pipeline.specs)
    group_rows = max(batch_rows, GROUP_NBYTES // max(1, row_nbytes))
    return plan_reads(
        pipeline.source,
        ReadRequest(pipeline.order, len(pipeline.source), group_rows * pipeline.shard_count, host_nbytes),
    )


def _pipeline_decisions(pipeline: Pipeline) -> list[Decision]:
    """Return the decisions about the order, the rank, the index folder and the source."""
    decisions = [order_decision(pipeline)]
    if isinstance(pipeline.rank, Rank):
        decisions.append(rank_decision(pipeline.rank, pipeline.schedule))
    elif pipeline.shard_count == 1 and (undivided := detect_undivided_rank()) is not None:
        decisions.append(undivided_decision(undivided))
    elif pipeline.indexed and (uneven := uneven_shards_decision(pipeline.schedule)) is not None:
        decisions.append(uneven)
    if pipeline.index_folder is not None:
        decisions += pipeline.index_folder.decisions
    if pipeline.source.read_decision is not None:
        decisions.append(pipeline.source.read_decision)
    return decisions


def _ragged_decisions(specs: TransformSpecs, hand_off: HandOff, *, is_ragged: bool) -> list[Decision]:
    """Return the decision about ragged fields; an empty list if there are no ragged fields."""
    names = [name for name, spec in zip(specs.structure.paths, specs.specs, strict=True) if spec.ragged]
    if not is_ragged or not names:
        return []
    form = f"the ragged type of {hand_off.name}" if isinstance(hand_off, RaggedTarget) else "fb.Ragged"
    return [Decision("ragged", ", ".join(names), f"values and offsets without padding, as {form}")]
