"""Builds the parts of a feed: plan, transform stage, slot filler and runner."""

from dataclasses import dataclass
from typing import Any

from forebay.core.handoff import HandOff
from forebay.core.machine import Machine
from forebay.core.recorder import Recorder
from forebay.core.source import AbstractSource
from forebay.feed.device_transforms import DeviceTransforms
from forebay.feed.filler import FillerParts, SlotFiller
from forebay.feed.indexed_filler import DeviceFiller, IndexedFiller
from forebay.feed.runner import Runner, RunnerParts
from forebay.feed.slot import Slot
from forebay.feed.stream_filler import BatchFiller, StreamFiller
from forebay.feed.throttle import ConsumerThrottle
from forebay.feed.transform_stage import TransformStage
from forebay.pipeline.plan import Plan
from forebay.pipeline.planner import make_plan
from forebay.pipeline.request import FeedRequest
from forebay.pipeline.target import Target
from forebay.sources.direct.open_reader import open_reader
from forebay.sources.direct.reader import FileReader
from forebay.sources.streams.batches import BatchStream

__all__ = ["FeedParts", "build_feed"]

NO_BUDGET_LIMIT = 1 << 62  # bytes; for a device, the planner has already fitted the slots to the budget


@dataclass(frozen=True, slots=True)
class FeedParts:
    """The objects that a feed consists of."""

    plan: Plan
    runner: Runner
    recorder: Recorder
    hand_off: HandOff
    device_transforms: DeviceTransforms | None = None


def build_feed(request: FeedRequest) -> FeedParts:
    """Plan a feed and build its parts. The first `iter()` starts the worker threads."""
    target = request.target
    plan = make_plan(request.plan_input, Machine.detect().cores)
    recorder, throttle = Recorder(), ConsumerThrottle()
    stage = _build_transform_stage(request, plan, recorder)
    filler_parts = FillerParts(request.pipeline, plan, stage, recorder)
    runner = Runner(
        RunnerParts(
            filler=_build_filler(filler_parts, throttle, target),
            engine=target.engine,
            make_slot=lambda: Slot(target.engine, plan.layout, shared_nbytes=stage.input_nbytes),
            throttle=throttle,
            recorder=recorder,
        ),
        slots=plan.slots,
        threads=plan.threads,
        budget_nbytes=plan.input.host_nbytes if plan.transport is None else NO_BUDGET_LIMIT,
    )
    return FeedParts(plan, runner, recorder, target.hand_off, _build_device_transforms(request))


def _build_transform_stage(request: FeedRequest, plan: Plan, recorder: Recorder) -> TransformStage:
    # The specs after the thread transforms are the specs of the input of worker processes or Ray workers.
    pipeline, worker_input = request.pipeline, request.specs.stages[len(plan.thread_transforms)]
    if plan.input.cluster is None:
        return TransformStage(plan, pipeline.structure, worker_input, schedule=pipeline.schedule)
    from forebay.feed.ray_stage import RayTransformStage  # imports Ray

    return RayTransformStage(plan, pipeline, worker_input, recorder)


def _build_filler(parts: FillerParts, throttle: ConsumerThrottle, target: Target) -> SlotFiller:
    pipeline, plan = parts.pipeline, parts.plan
    if not pipeline.indexed:
        filler_class = BatchFiller if isinstance(pipeline.source, BatchStream) else StreamFiller
        return filler_class(parts, throttle)
    cluster = plan.input.cluster
    workers_get_rows = cluster is not None and cluster.row_delivery != "sent"  # from files or the object store
    remote_filler: Any = parts.transform_stage if workers_get_rows else None  # a RayTransformStage
    return IndexedFiller(
        parts,
        device_filler=_build_device_filler(parts, target),
        reader=_open_file_reader(parts),
        remote_filler=remote_filler,
    )


def _build_device_filler(parts: FillerParts, target: Target) -> DeviceFiller | None:
    transport, source = parts.plan.transport, parts.pipeline.source
    if transport is None:
        return None
    from forebay.engines.cuda.pull.row_puller import RowPuller  # imports the CUDA bindings

    assert isinstance(source, AbstractSource)
    engine: Any = target.engine
    return RowPuller(engine, source, source.memory_extents(), transport, parts.plan.layout.specs, parts.recorder)


def _open_file_reader(parts: FillerParts) -> FileReader | None:
    reading, source = parts.plan.input.reading, parts.pipeline.source
    if reading is None or parts.plan.transport is not None:
        return None
    assert isinstance(source, AbstractSource)
    return open_reader(source, reading)


def _build_device_transforms(request: FeedRequest) -> DeviceTransforms | None:
    transforms, hand_off = request.plan_input.device_transforms, request.target.device_handoff
    if not transforms or hand_off is None:
        return None
    first = len(request.pipeline.transforms) - len(transforms)  # device transforms are the last ones
    return DeviceTransforms(transforms, request.specs.structure, hand_off, first=first)
