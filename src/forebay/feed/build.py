"""Builds the parts of a feed: plan, transform stage, slot filler, runner and device transforms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.core.array_ops import ArrayOps, ArrayOpsProvider
from forebay.core.handoff import CastingHandOff, FinishingHandOff, HandOff, RaggedTarget, SparseHandOff, TracingHandOff
from forebay.core.machine import Machine
from forebay.core.ragged import Ragged, map_values
from forebay.core.recorder import Recorder
from forebay.core.skipped_rows import SOURCE, ErrorLimit
from forebay.core.source import AbstractSource
from forebay.core.spec import Structure, Tree, flatten
from forebay.errors import BudgetError, PipelineError
from forebay.feed.filler import FillerParts, SlotFiller
from forebay.feed.indexed_filler import DeviceFiller, IndexedFiller
from forebay.feed.runner import Runner, RunnerParts
from forebay.feed.slot import Slot
from forebay.feed.stream_filler import BatchFiller, StreamFiller
from forebay.feed.throttle import ConsumerThrottle
from forebay.feed.transform_stage import TransformStage
from forebay.order.epoch_views import find_source_row
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan, PlanInput
from forebay.pipeline.planner import make_plan
from forebay.pipeline.request import FeedRequest, resolve_request
from forebay.pipeline.target import Target
from forebay.sources.direct.open_reader import open_reader
from forebay.sources.direct.reader import FileReader
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.densify import Densify
from forebay.transforms.ops import Cast, Map, Scale, Transform, values_per_leaf
from forebay.transforms.random_keys import make_rng
from forebay.transforms.row_errors import SkippedRowLog

__all__ = ["DeviceTransforms", "FeedParts", "build_feed", "plan_version_of", "rebuild_feed"]

# The budget in bytes of a runner whose slots are in device memory: no limit, because the planner has already fitted
# these slots to the budget.
NO_BUDGET_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class FeedParts:
    """The objects that a feed consists of."""

    plan: Plan
    runner: Runner
    recorder: Recorder
    hand_off: "HandOff | RaggedHandOff"
    build_tree: Callable[[Sequence[Any]], Tree]  # builds the batch that the user receives from the framework's arrays
    device_transforms: "DeviceTransforms | None" = None
    skipped_rows: SkippedRowLog | None = None  # None if neither the source nor a map skips rows
    refuse_tracing: Callable[[], None] | None = None  # raises an error in a traced function; None without tracing
    plan_version: int = 0  # `AbstractSource.plan_version` at the time of planning


def build_feed(request: FeedRequest, recorder: Recorder | None = None) -> FeedParts:
    """Plan a feed and build its parts. The first `iter()` starts the worker threads.

    To build new parts for a running feed, pass the recorder of its earlier parts, so that its statistics continue.
    """
    target, plan_version = request.target, plan_version_of(request.pipeline)
    plan = make_plan(request.plan_input, Machine.detect().cores)
    recorder, throttle = recorder or Recorder(), ConsumerThrottle()
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
    skipped_rows = _build_skipped_row_log(request.pipeline, plan, recorder)
    hand_off = target.hand_off if plan.input.offsets_dtype is None else RaggedHandOff(target.hand_off, plan.input)
    return FeedParts(
        plan=plan,
        runner=runner,
        recorder=recorder,
        hand_off=hand_off,
        build_tree=_make_tree_builder(request),
        device_transforms=_build_device_transforms(request),
        skipped_rows=skipped_rows,
        refuse_tracing=target.hand_off.refuse_tracing if isinstance(target.hand_off, TracingHandOff) else None,
        plan_version=plan_version,
    )


def rebuild_feed(pipeline: Pipeline, options: FeedOptions, recorder: Recorder) -> FeedParts | None:
    """Build new parts for a running feed; return None if they exceed its budgets."""
    try:
        return build_feed(resolve_request(pipeline, options), recorder)
    except BudgetError as error:
        recorder.note("new plan", "none", f"the old plan stays: {error}")
        return None


def plan_version_of(pipeline: Pipeline) -> int:
    """Return the source's present `plan_version`; 0 for streams and ready-made batches.

    A feed makes a new plan if this number is no longer that of its plan.
    """
    return pipeline.source.plan_version if isinstance(pipeline.source, AbstractSource) else 0


def _make_tree_builder(request: FeedRequest) -> Callable[[Sequence[Any]], Tree]:
    hand_off: Any = request.target.hand_off
    if request.sparse_batches is None:
        build_tree = request.plan_input.structure.builder()
    else:  # `make_sparse_batches` has checked that the hand-off is a SparseTensorHandOff
        build_tree = request.sparse_batches.builder(hand_off)
    if not isinstance(hand_off, FinishingHandOff):
        return build_tree
    finish = hand_off.finish
    return lambda leaves: build_tree(finish(leaves))


def _build_skipped_row_log(pipeline: Pipeline, plan: Plan, recorder: Recorder) -> SkippedRowLog | None:
    limits = {
        index: ErrorLimit(str(transform), transform.max_errors)
        for index, transform in enumerate(plan.input.transforms)
        if isinstance(transform, Map) and transform.max_errors is not None
    }
    source_limit = pipeline.source.error_limit if isinstance(pipeline.source, AbstractSource) else None
    if source_limit is not None:
        limits = {SOURCE: source_limit, **limits}
        why = f"other rows of the batch replace them, up to {source_limit.max_errors * 100:.4g} % of all rows"
        recorder.note("unreadable rows", "skipped", why)
    if not limits:
        return None
    log = SkippedRowLog(limits, partial(find_source_row, pipeline.order))
    recorder.register_counters("skipped_rows", log.counts)
    return log


def _build_transform_stage(request: FeedRequest, plan: Plan, recorder: Recorder) -> TransformStage:
    # The specs and structure after the transforms in threads are those of the input of worker processes or Ray workers.
    pipeline, worker_input = request.pipeline, request.specs.stages[len(plan.thread_transforms)]
    if plan.input.cluster is None:
        return TransformStage(plan, pipeline.structure, worker_input, schedule=pipeline.schedule)
    from forebay.feed.ray_stage import RayTransformStage  # this module loads Ray

    return RayTransformStage(plan, pipeline, worker_input, recorder)


def _build_filler(parts: FillerParts, throttle: ConsumerThrottle, target: Target) -> SlotFiller:
    pipeline, plan = parts.pipeline, parts.plan
    if not pipeline.indexed:
        filler_class = BatchFiller if isinstance(pipeline.source, BatchStream) else StreamFiller
        return filler_class(parts, throttle)
    cluster = plan.input.cluster
    workers_get_rows = cluster is not None and cluster.row_delivery != "sent"  # from files or Ray's object store
    remote_filler: Any = parts.transform_stage if workers_get_rows else None  # the RayTransformStage
    return IndexedFiller(
        parts,
        device_filler=_build_device_filler(parts, target),
        reader=_open_file_reader(parts),
        remote_filler=remote_filler,
    )


def _build_device_filler(parts: FillerParts, target: Target) -> DeviceFiller | None:
    plan, source = parts.plan, parts.pipeline.source
    transport = plan.transport
    engine: Any = target.engine
    assert isinstance(source, AbstractSource)
    if plan.input.decodes_on_device:
        from forebay.engines.cuda.decode.image_filler import ImageFiller  # this module loads the CUDA bindings

        return ImageFiller(engine, source, threads=plan.threads, recorder=parts.recorder)
    if transport is None:
        return None
    from forebay.engines.cuda.pull.row_puller import RowPuller  # this module loads the CUDA bindings

    return RowPuller(engine, source, source.memory_extents(), transport, parts.plan.layout.specs, parts.recorder)


def _open_file_reader(parts: FillerParts) -> FileReader | None:
    reading, source = parts.plan.input.reading, parts.pipeline.source
    if reading is None or parts.plan.transport is not None:
        return None
    assert isinstance(source, AbstractSource)
    return open_reader(source, reading)


def _build_device_transforms(request: FeedRequest) -> "DeviceTransforms | None":
    transforms = request.plan_input.device_transforms
    if not transforms:
        return None
    # The device transforms are the last transforms of the pipeline. If Forebay has added a Densify (which makes sparse
    # rows dense) before the user's transforms, it gets the index -1. So the user's transforms keep their indices, which
    # seed random numbers.
    added = sum(isinstance(transform, Densify) for transform in transforms)
    first = len(request.pipeline.transforms) - len(transforms) - added
    return DeviceTransforms(transforms, request.specs.structure, request.target.hand_off, first=first)


class RaggedHandOff:
    """A hand-off that makes one object from the two arrays of each ragged leaf.

    In a slot, a leaf of ragged rows has two arrays, its values and its offsets. Any other leaf has one array.
    """

    def __init__(self, hand_off: HandOff, plan_input: PlanInput) -> None:
        self._hand_off = hand_off
        self._is_ragged = [plan_input.is_ragged(leaf) for leaf in range(len(plan_input.specs))]
        self._join: Callable[[Any, Any], Any] = hand_off.join_ragged if isinstance(hand_off, RaggedTarget) else Ragged

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        arrays = iter(self._hand_off.hand_off(roots))
        return [self._join(next(arrays), next(arrays)) if is_ragged else next(arrays) for is_ragged in self._is_ragged]


class DeviceTransforms:
    """Applies the device transforms of a feed in order when the consumer takes a batch.

    Casts and scaling return the same numbers as on the host, or narrower ones if the framework narrows the dtype. A map
    receives one batch of the framework's arrays and runs on the consumer's thread and stream.
    """

    def __init__(self, transforms: Sequence[Transform], structure: Structure, hand_off: HandOff, *, first: int) -> None:
        """Compile the augmentations. `first` is the index of the first device transform in the pipeline."""
        self._transforms, self._structure, self._hand_off, self._first = tuple(transforms), structure, hand_off, first
        self._finish = hand_off.finish if isinstance(hand_off, FinishingHandOff) else None
        images = {
            index: transform for index, transform in enumerate(transforms, first) if isinstance(transform, Augmentation)
        }
        self._pixel_functions: dict[int, Callable[[Any, Any], Any]] = {}
        if images:
            ops = self._array_ops = _array_ops_of(hand_off, next(iter(images.values())))
            self._pixel_functions = {
                index: ops.compile(partial(transform.pixels, ops)) for index, transform in images.items()
            }

    def __call__(self, leaves: list[Any], context: BatchContext) -> Tree:
        """Return the transformed batch. `leaves` are its arrays, and `context` seeds the random numbers."""
        structure = self._structure
        for index, transform in enumerate(self._transforms, self._first):
            try:
                leaves, structure = self._apply(transform, leaves, structure, context.for_transform(index))
            except Exception as error:
                error.add_note(f"in {transform}, on the device")
                raise
        return structure.unflatten(leaves if self._finish is None else self._finish(leaves))

    def _apply(
        self, transform: Transform, leaves: list[Any], structure: Structure, context: BatchContext
    ) -> tuple[list[Any], Structure]:
        if isinstance(transform, Densify):
            assert isinstance(self._hand_off, SparseHandOff)  # `choose_sparse_transport` has checked this
            return transform.join(leaves, self._hand_off.to_dense), transform.structure
        if isinstance(transform, Map):
            seeding = context.for_transform(context.transform + transform.cached_before)
            return _apply_map(transform, structure.unflatten(leaves), seeding.batch_numbers)
        if isinstance(transform, Augmentation):
            ops, pixels = self._array_ops, self._pixel_functions[context.transform]
            return transform.apply_with(ops, pixels, leaves, structure, context)
        assert isinstance(transform, Cast | Scale)  # `split_transforms` moves no other transform to a device
        values = zip(leaves, values_per_leaf(transform.fields, structure, transform), strict=True)
        if isinstance(transform, Cast):
            return [leaf if dtype is None else self._cast(leaf, dtype) for leaf, dtype in values], structure
        scale = self._scale
        scaled = [leaf if factor is None else map_values(scale, leaf, factor, transform) for leaf, factor in values]
        return scaled, structure

    def _cast(self, leaf: Any, dtype: np.dtype[Any]) -> Any:
        assert isinstance(self._hand_off, CastingHandOff)  # `Target.runs_device_transforms` has checked this
        return self._hand_off.cast(leaf, dtype)

    def _scale(self, leaf: Any, factor: float, transform: Scale) -> Any:
        scaled = self._cast(leaf, transform.dtype) * transform.dtype.type(factor).item()
        return scaled + transform.dtype.type(transform.offset).item() if transform.offset else scaled


def _array_ops_of(hand_off: HandOff, transform: Augmentation) -> ArrayOps:
    if not isinstance(hand_off, ArrayOpsProvider):
        raise PipelineError(
            f"{transform} comes after a map on the device, but the hand-off {hand_off.name!r} has no array operations "
            "for augmentations. Put it before that map, so that it runs on the host."
        )
    return hand_off.array_ops()


def _apply_map(transform: Map, tree: Tree, key: Sequence[int]) -> tuple[list[Any], Structure]:
    function = transform.function
    result = function(tree, rng=make_rng(transform.seed, key)) if transform.takes_rng else function(tree)
    return flatten(result)
