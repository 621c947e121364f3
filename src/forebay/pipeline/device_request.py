"""The device part of a request: pulled rows and device transforms."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forebay.core.array_ops import ArrayOpsProvider
from forebay.core.ceilings import Probe
from forebay.core.decision import Decision
from forebay.core.engine import ImageDecodingEngine
from forebay.core.handoff import HandOff
from forebay.core.machine import Machine
from forebay.core.source import AbstractSource, MemoryExtent, find_overlap
from forebay.core.spec import ArraySpec, Structure, format_nbytes
from forebay.errors import PipelineError
from forebay.order.device_steps import step_tables
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import LENT_SLOTS
from forebay.pipeline.spec_inference import TransformSpecs, infer_specs
from forebay.pipeline.target import Target
from forebay.pipeline.transport import DeviceInput, PullSpeeds
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Cast, Map, Scale, Transform, apply_all, values_per_leaf

__all__ = [
    "can_pull_rows",
    "choose_image_decoder",
    "decodes_on_device",
    "device_input",
    "memory_extents_of",
    "output_specs",
    "split_transforms",
    "transforms_before_device_maps",
]

# Slots that the consumer uses with a run-ahead limit: LENT_SLOTS, and one that queued work of the device still reads.
QUEUED_CONSUMER_SLOTS = 3
MAX_MAPPED_SHARE = 0.6  # share of the machine's memory for page-locked file pages, which Linux cannot evict
NOT_CONTIGUOUS = "rows are not contiguous, or not in native byte order, so a device cannot pull them"


def device_input(
    pipeline: Pipeline, target: Target, transforms: Sequence[Transform], resident: str, budget_nbytes: int | None
) -> DeviceInput | None:
    """Return what the planner reads about the device; None if the target is the CPU.

    `transforms` are the transforms that run on the host. Raise PipelineError if `resident` is "always" but the device
    cannot pull the rows.
    """
    if target.device_handoff is None:
        return None
    extents = memory_extents_of(pipeline)
    why_staged = _why_staged(pipeline, transforms, extents)
    if why_staged:
        extents = []
    if not extents and resident == "always":
        raise PipelineError(
            f"resident='always' needs rows that the device can pull, but {why_staged or NOT_CONTIGUOUS}. "
            "Use resident='auto'."
        )
    return DeviceInput(
        name=f"cuda:{target.device_handoff.index}",
        available_nbytes=target.available_nbytes,
        budget_nbytes=budget_nbytes,
        resident=resident,
        rows=len(pipeline.source) if isinstance(pipeline.source, AbstractSource) else 0,
        extents=tuple(map(len, extents)),
        batches=_pass_batches(pipeline),
        consumer_slots=QUEUED_CONSUMER_SLOTS if target.device_handoff.syncs_on_import else LENT_SLOTS,
        overlap_nbytes=_overlap_nbytes(pipeline, extents),
        order_nbytes=_order_nbytes(pipeline),
        why_staged=why_staged or NOT_CONTIGUOUS,
        speeds=_pull_speeds(),
    )


def choose_image_decoder(
    pipeline: Pipeline, target: Target, transforms: Sequence[Transform]
) -> tuple[Pipeline, tuple[Decision, ...]]:
    """Return a pipeline whose images the device decodes, if possible.

    The device can decode them if the user left the choice of the decoder to Forebay, if the device has a decoder, and
    if neither a transform nor padding needs the pixels on the host (`transforms` are those of the host). Otherwise
    return the same pipeline, with a decision that gives the reason if the target is a device.
    """
    source = pipeline.source
    if target.device_handoff is None or not isinstance(source, AbstractSource):
        return pipeline, ()
    if source.for_device_decoder is None:
        why = source.why_no_device_decoder
        return pipeline, (Decision("images", "decoded on the host", why),) if why else ()
    if transforms or pipeline.padded:
        why = f"{transforms[0] if transforms else 'batch(pad=...)'} runs on the host"
    elif isinstance(target.engine, ImageDecodingEngine):
        why = target.engine.why_no_image_decoder()
    else:
        why = f"the engine {target.engine.name} has no decoder"
    if why:
        return pipeline, (Decision("images", "decoded on the host", why),)
    return replace(pipeline, source=source.for_device_decoder()), ()


def decodes_on_device(pipeline: Pipeline, transforms: Sequence[Transform]) -> bool:
    """Return whether the device decodes the images of the source.

    `transforms` run on the host. Raise PipelineError if the device decodes, but one of them or the padding of `batch()`
    needs the decoded images on the host.
    """
    if not isinstance(pipeline.source, AbstractSource) or pipeline.source.encoded_images is None:
        return False
    if transforms or pipeline.padded:
        name = transforms[0] if transforms else "batch(pad=...)"
        raise PipelineError(
            f"{name} runs on the host, but decoder='nvjpeg' decodes images on the device. Use "
            "map(..., where='device') after batch(), or decoder='auto'."
        )
    return True


def can_pull_rows(pipeline: Pipeline, transforms: Sequence[Transform]) -> bool:
    """Return whether a device can pull the rows while `transforms` run on the host."""
    extents = memory_extents_of(pipeline)
    return bool(extents) and not _why_staged(pipeline, transforms, extents)


def memory_extents_of(pipeline: Pipeline) -> Sequence[Sequence[MemoryExtent]]:
    """Return the memory extents of each leaf, or an empty list if there are none."""
    return pipeline.source.memory_extents() if isinstance(pipeline.source, AbstractSource) else []


def _why_staged(pipeline: Pipeline, transforms: Sequence[Transform], extents: Sequence[Sequence[MemoryExtent]]) -> str:
    """Return why a device cannot pull the rows, or an empty string.

    An empty `extents` is another reason, which the callers check themselves.
    """
    if not isinstance(pipeline.source, AbstractSource):
        return "the rows are read in sequence, not by index"
    if pipeline.source.encoded_images is not None:
        return "the device decodes the rows"
    if pipeline.padded:
        return "batches may differ in size"
    if transforms:
        return f"{transforms[0]} runs on the host"
    if not pipeline.source.memory():
        return "the rows are not in memory that can be page-locked"
    # `own_pages` is True only for extents in mapped files.
    mapped_nbytes = sum(extent.rows * extent.stride for leaf in extents for extent in leaf if extent.own_pages)
    memory_nbytes = Machine.detect().memory_nbytes
    if mapped_nbytes > memory_nbytes * MAX_MAPPED_SHARE:
        return (
            f"{format_nbytes(mapped_nbytes)} of page-locked file pages would take too much of this machine's "
            f"{format_nbytes(memory_nbytes)} of memory"
        )
    return ""


def _overlap_nbytes(pipeline: Pipeline, extents: Sequence[Sequence[MemoryExtent]]) -> int:
    """Return the bytes that a row shares with the next row, summed over all leaves."""
    leaves = zip(pipeline.specs, extents, strict=False)  # `extents` may be empty
    return sum(find_overlap(leaf, spec.nbytes) for spec, leaf in leaves)


def _order_nbytes(pipeline: Pipeline) -> int | None:
    """Return the bytes of the tables with which a device computes row numbers.

    Return None if a device cannot compute them.
    """
    steps = None if pipeline.order is None else pipeline.order.device_steps(0)
    if steps is None:
        return None
    tables = {id(table): table.nbytes for table in step_tables(steps)}
    return sum(tables.values())


def _pass_batches(pipeline: Pipeline) -> int | None:
    """Return the number of batches of this shard in one pass; None for a stream.

    The result is at most the number of batches with which all shards together receive each row of the source once. So
    an endless pass has a number too.
    """
    if not isinstance(pipeline.source, AbstractSource):
        return None
    schedule = pipeline.schedule
    batches = -(-len(pipeline.source) // schedule.batch_rows)
    return batches if schedule.pass_batches is None else min(batches, schedule.pass_batches)


def _pull_speeds() -> PullSpeeds | None:
    """Return how fast this machine's device pulls rows, or None if it was not measured."""
    probe = Probe.cached()
    return probe.device.pull if probe is not None and probe.device is not None else None


def split_transforms(
    pipeline: Pipeline, transforms: tuple[Transform, ...], hand_off: HandOff
) -> tuple[TransformSpecs, tuple[Transform, ...]]:
    """Return the host's transforms with their specs, and the device transforms.

    The last transforms run on the device if it can run them and the upload does not become larger. Of all splits with
    the fewest uploaded bytes, this function chooses the one with the fewest host transforms. No augmentation that the
    device can run stays on the host, because the CPU needs far more time to compute a pixel than the link needs to
    upload it.
    """
    specs = infer_specs(pipeline, transforms_before_device_maps(transforms))
    max_count = len(specs.transforms)
    min_count = max_count
    lowest = max_count if pipeline.batching is not None and pipeline.batching.ragged is not None else 0
    while min_count > lowest and _runs_on_device(transforms[min_count - 1], *specs.stages[min_count - 1], hand_off):
        min_count -= 1
    images = (number for number in range(min_count, max_count) if isinstance(transforms[number], Augmentation))
    max_count = next(images, max_count)
    host_count = min(range(min_count, max_count + 1), key=lambda count: (_row_nbytes(specs.stages[count][0]), count))
    host_specs = replace(specs, transforms=specs.transforms[:host_count], stages=specs.stages[: host_count + 1])
    return host_specs, transforms[host_count:]


def output_specs(
    specs: TransformSpecs, device_transforms: tuple[Transform, ...], hand_off: HandOff
) -> tuple[tuple[ArraySpec, ...], Structure] | None:
    """Return specs and structure after the device transforms.

    Return None if one of them is a map, because the result of the user's function is unknown.
    """
    if any(isinstance(transform, Map) for transform in device_transforms):
        return None
    if not device_transforms:
        return specs.specs, specs.structure
    rows = [np.zeros(spec.batch_shape(1), spec.dtype) for spec in specs.specs]
    leaves, structure = apply_all(device_transforms, rows, specs.structure, BatchContext.of_sample(1))
    return tuple(ArraySpec(leaf.shape[1:], hand_off.framework_dtype(leaf.dtype)) for leaf in leaves), structure


def transforms_before_device_maps(transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Return the transforms before the first transform with where='device'.

    Raise PipelineError if a transform after it cannot run on the device.
    """
    wheres = [transform.where for transform in transforms]
    if "device" not in wheres:
        return transforms
    first = wheres.index("device")
    for transform in transforms[first:]:
        if transform.where != "device" and not isinstance(transform, Cast | Scale | Augmentation):
            raise PipelineError(
                f"{transform} would run on the host after {transforms[first]} on the device: put it before, or "
                "use map(..., where='device') for both."
            )
        if isinstance(transform, Map) and transform.by_row:
            raise PipelineError(f"{transform} would be called row by row on the device: put it after batch().")
    return transforms[:first]


def _runs_on_device(
    transform: Transform, specs: tuple[ArraySpec, ...], structure: Structure, hand_off: HandOff
) -> bool:
    """Return whether a device can run a transform with the same result as the host.

    If the framework narrows 64-bit integers, the result may differ, because the device would receive truncated values.
    """
    if isinstance(transform, Augmentation):
        if not isinstance(hand_off, ArrayOpsProvider):
            return False
        rows = [(spec.batch_shape(1)[1:], str(spec.dtype)) for spec in specs]
        values = [True if is_chosen else None for is_chosen in transform.chosen_fields(rows, structure)]
    elif isinstance(transform, Cast | Scale):
        values = values_per_leaf(transform.fields, structure, transform)
    else:
        return False
    changes = zip(values, specs, strict=True)
    return not any(
        change is not None and spec.dtype.kind in "iu" and hand_off.framework_dtype(spec.dtype) != spec.dtype
        for change, spec in changes
    )


def _row_nbytes(specs: Sequence[ArraySpec]) -> int:
    return sum(spec.nbytes for spec in specs)
