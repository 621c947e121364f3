"""What a feed asks of a device: which rows it could fetch by itself, and which transforms are left to it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forebay.core.ceilings import Probe
from forebay.core.handoff import HandOff
from forebay.core.machine import Machine
from forebay.core.source import Extent, Source
from forebay.core.spec import ArraySpec, Structure, format_nbytes
from forebay.errors import PipelineError
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import USUALLY_LENT
from forebay.pipeline.target import Place
from forebay.pipeline.trace import Traced, trace
from forebay.pipeline.transport import DeviceDemand, Speeds
from forebay.transforms.ops import Cast, Map, Scale, Transform, apply_all, by_leaf

__all__ = ["device_demand", "extents_of", "fetches_rows", "given_by", "split_transforms"]

IN_USE_QUEUED = 3  # slots, where work that is queued keeps what it reads: a consumer may be a group ahead of its device
MAPPED_SHARE = 0.6  # of the machine's memory: what is page-locked stays in it
NOT_WHOLE = "rows do not lie whole, in native byte order, where a device could fetch them"


def device_demand(
    pipeline: Pipeline, place: Place, asked: Sequence[Transform], resident: str, budget: int | None
) -> DeviceDemand | None:
    """The device's side of a feed with these transforms on the host; None where there is no device."""
    if place.side is None:
        return None
    found = extents_of(pipeline)
    why = _why_staged(pipeline, asked, found)
    if why:
        found = []
    if not found and resident == "always":
        raise PipelineError(
            f"resident='always' needs rows that the device can fetch: {why or NOT_WHOLE}. Use resident='auto'."
        )
    return DeviceDemand(
        name=f"cuda:{place.side.index}",
        available_nbytes=place.available_nbytes,
        budget_nbytes=budget,
        resident=resident,
        rows=len(pipeline.source) if isinstance(pipeline.source, Source) else 0,
        extents=tuple(map(len, found)),
        batches=_pass_batches(pipeline),
        in_use=IN_USE_QUEUED if place.side.waits_on_import else USUALLY_LENT,
        why_staged=why or NOT_WHOLE,
        speeds=_speeds(),
    )


def _pass_batches(pipeline: Pipeline) -> int | None:
    """Of one pass over the rows, as this shard gets them."""
    if not isinstance(pipeline.source, Source):
        return None
    schedule = pipeline.schedule
    whole = -(-len(pipeline.source) // schedule.batch_rows)
    return whole if schedule.pass_batches is None else min(whole, schedule.pass_batches)


def fetches_rows(pipeline: Pipeline, transforms: Sequence[Transform]) -> bool:
    """Whether a device can fetch the rows by itself, where these are left to the host."""
    found = extents_of(pipeline)
    return bool(found) and not _why_staged(pipeline, transforms, found)


def _speeds() -> Speeds | None:
    """How fast this machine's device fetches rows, if somebody has measured it."""
    probe = Probe.cached()
    return probe.device.pull if probe is not None and probe.device is not None else None


def extents_of(pipeline: Pipeline) -> Sequence[Sequence[Extent]]:
    """Where the rows of each leaf lie, if the source can tell."""
    found: Sequence[Sequence[Extent]] = getattr(pipeline.source, "extents", list)()
    return found


def _why_staged(pipeline: Pipeline, transforms: Sequence[Transform], found: Sequence[Sequence[Extent]]) -> str:
    """Why a device cannot fetch the rows by itself, or nothing."""
    if not isinstance(pipeline.source, Source):
        return "a stream comes row by row"
    if pipeline.padded:
        return "batches differ in size"
    if transforms:
        return f"{transforms[0]} runs on the host"
    if not pipeline.source.memory():
        return "the rows do not lie in memory that can be page-locked"
    mapped = sum(_span_nbytes(extent) for leaf in found for extent in leaf if extent.own_pages)
    memory = Machine.here().memory_nbytes
    if mapped > memory * MAPPED_SHARE:
        return (
            f"{format_nbytes(mapped)} of mapped files, page-locked, would fill this machine's {format_nbytes(memory)}"
        )
    return ""


def _span_nbytes(extent: Extent) -> int:
    return extent.rows * extent.stride


def split_transforms(
    pipeline: Pipeline, transforms: tuple[Transform, ...], hand_off: HandOff
) -> tuple[Traced, tuple[Transform, ...]]:
    """Those of the host, traced, and those of the device: as few on the host as move the fewest bytes across."""
    traced = trace(pipeline, _host_part(transforms))
    host = len(traced.transforms)
    first = host
    while first > 0 and _moves(transforms[first - 1], *traced.steps[first - 1], hand_off):
        first -= 1
    cut = min(range(first, host + 1), key=lambda count: (_row_nbytes(traced.steps[count][0]), count))
    return replace(traced, transforms=traced.transforms[:cut], steps=traced.steps[: cut + 1]), transforms[cut:]


def _moves(transform: Transform, specs: tuple[ArraySpec, ...], structure: Structure, hand_off: HandOff) -> bool:
    """Whether a device does the same: not where the framework holds large whole numbers there by their lower half."""
    if not isinstance(transform, Cast | Scale):
        return False
    changed = zip(by_leaf(transform.fields, structure, transform), specs, strict=True)
    return not any(
        to is not None and spec.dtype.kind in "iu" and hand_off.held_dtype(spec.dtype) != spec.dtype
        for to, spec in changed
    )


def given_by(
    traced: Traced, afterwards: tuple[Transform, ...], hand_off: HandOff
) -> tuple[tuple[ArraySpec, ...], Structure] | None:
    """What the user gets in the end; None where only running a map on the device tells."""
    if any(isinstance(transform, Map) for transform in afterwards):
        return None
    if not afterwards:
        return traced.specs, traced.structure
    rows = [np.zeros(spec.batch_shape(1), spec.dtype) for spec in traced.specs]
    leaves, structure = apply_all(afterwards, rows, traced.structure, (0, 0, 0))
    return tuple(ArraySpec(leaf.shape[1:], hand_off.held_dtype(leaf.dtype)) for leaf in leaves), structure


def _host_part(transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Up to the first that the user wants on the device; nothing of the user's may come back from there."""
    wheres = [transform.where for transform in transforms]
    if "device" not in wheres:
        return transforms
    first = wheres.index("device")
    for transform in transforms[first:]:
        if transform.where != "device" and not isinstance(transform, Cast | Scale):
            raise PipelineError(
                f"{transform} would run on the host after {transforms[first]} on the device: put it before, or "
                "use map(..., where='device') for both."
            )
        if isinstance(transform, Map) and transform.by_row:
            raise PipelineError(f"{transform} would be called row by row on the device: put it after batch().")
    return transforms[:first]


def _row_nbytes(specs: Sequence[ArraySpec]) -> int:
    return sum(spec.nbytes for spec in specs)
