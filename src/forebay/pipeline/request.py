"""What is asked of a feed: the pipeline, refused or traced, with all that a plan is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.decision import Reason
from forebay.core.engine import Engine
from forebay.core.handoff import HandOff
from forebay.core.source import Source
from forebay.core.spec import ArraySpec, Structure, format_nbytes, parse_nbytes
from forebay.errors import PipelineError
from forebay.pipeline.device_request import device_demand, fetches_rows, given_by, split_transforms
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Demand
from forebay.pipeline.planner import GROUP_NBYTES
from forebay.pipeline.ranks import Rank, describe_rank
from forebay.pipeline.ray_request import spread
from forebay.pipeline.target import Place, find_place
from forebay.pipeline.trace import Traced, trace, with_padding
from forebay.pipeline.validate import check_pipeline, check_place, loosened
from forebay.sources.direct.open_reader import plan_reading
from forebay.sources.direct.strategy import Need, Reading
from forebay.sources.items import ItemSource
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.combinators import ShuffledStream
from forebay.transforms.ops import Cast, Transform

__all__ = ["Asked", "ask"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A feed that can be planned."""

    pipeline: Pipeline
    place: Place
    traced: Traced
    demand: Demand


def ask(
    pipeline: Pipeline,
    *,
    to: str,
    device: str | Engine,
    resident: str,
    host_bytes: int | str,
    device_bytes: int | str | None,
) -> Asked:
    """Look at everything that was asked, and refuse what cannot be."""
    check_pipeline(pipeline, resident)
    place = find_place(device, to)
    host_nbytes = parse_nbytes(host_bytes, "host_bytes")
    budget = None if device_bytes is None else parse_nbytes(device_bytes, "device_bytes")
    check_place(pipeline, place, resident, budget)
    pipeline = loosened(pipeline)
    asked, afterwards = _trace(pipeline, place)
    traced, notes = _as_held(pipeline, place, asked)
    demand = replace(
        _demand(pipeline, place, traced, (*place.notes, *notes), host_nbytes),
        afterwards=afterwards,
        given=given_by(traced, afterwards, place.hand_off),
        device=device_demand(pipeline, place, asked.transforms, resident, budget),
    )
    demand = replace(demand, cluster=spread(pipeline, demand))
    return Asked(pipeline, place, traced, replace(demand, reading=_reading(pipeline, demand)))


def _trace(pipeline: Pipeline, place: Place) -> tuple[Traced, tuple[Transform, ...]]:
    """The transforms of the host, and those of the device."""
    transforms = with_padding(pipeline)
    if place.side is None:
        return trace(pipeline, transforms), ()
    return split_transforms(pipeline, transforms, place.hand_off)


def _as_held(pipeline: Pipeline, place: Place, traced: Traced) -> tuple[Traced, tuple[Reason, ...]]:
    """What the framework narrows anyway is narrowed last."""
    hand_off = place.hand_off
    hand_off.check(traced.specs, traced.structure.paths)
    narrowed = _narrowed(traced.specs, traced.structure, hand_off)
    if not narrowed:
        return traced, ()
    if len({*traced.structure.paths}) < len(traced.structure.paths):
        raise PipelineError(
            f"two fields have one name ({', '.join(traced.structure.paths)}): call one of them otherwise."
        )
    told = ", ".join(f"{name} to {dtype}" for name, dtype in narrowed.items())
    reason = Reason("narrowed", told, f"{hand_off.name} would narrow it anyway (jax_enable_x64 is off)")
    if place.side is not None and fetches_rows(pipeline, traced.transforms):
        return _held(traced, narrowed), (reason,)  # by the device, which fetches rows as they lie
    return trace(pipeline, (*traced.transforms, Cast(narrowed))), (reason,)


def _held(traced: Traced, narrowed: dict[str, np.dtype[Any]]) -> Traced:
    """What is handed off in the end, where some of it is narrowed."""
    specs, structure = traced.steps[-1]
    held = tuple(
        replace(spec, dtype=narrowed.get(name, spec.dtype)) for name, spec in zip(structure.paths, specs, strict=True)
    )
    return replace(traced, steps=(*traced.steps[:-1], (held, structure)))


def _narrowed(specs: Sequence[ArraySpec], structure: Structure, hand_off: HandOff) -> dict[str, np.dtype[Any]]:
    held = {name: hand_off.held_dtype(spec.dtype) for name, spec in zip(structure.paths, specs, strict=True)}
    return {name: held[name] for name, spec in zip(structure.paths, specs, strict=True) if held[name] != spec.dtype}


def _demand(
    pipeline: Pipeline,
    place: Place,
    traced: Traced,
    notes: tuple[Reason, ...],
    host_nbytes: int,
) -> Demand:
    source = pipeline.source
    return Demand(
        target=place.hand_off.name,
        engine=place.engine.name,
        alignment=place.engine.alignment,
        batch_rows=traced.batch_rows,
        batches=_batches(pipeline),
        source_specs=tuple(pipeline.specs),
        specs=traced.specs,
        structure=traced.structure,
        transforms=traced.transforms,
        indexed=pipeline.indexed,
        by_item=isinstance(source, ItemSource),
        sized=not pipeline.padded and not isinstance(source, BatchStream),
        window_nbytes=source.window_nbytes if isinstance(source, ShuffledStream) else 0,
        host_nbytes=host_nbytes,
        notes=(*_order_notes(pipeline), *_rank_notes(pipeline), *_read_notes(pipeline), *notes),
    )


def _batches(pipeline: Pipeline) -> int | None:
    if pipeline.indexed:
        return pipeline.schedule.batches
    if isinstance(pipeline.source, BatchStream) and pipeline.source.length is not None and pipeline.passes is not None:
        shards = pipeline.shard_count
        own = len(range(pipeline.shard_index, pipeline.source.length, shards)) * pipeline.passes
        return own if pipeline.batch_limit is None else min(own, pipeline.batch_limit)
    return None


def _order_notes(pipeline: Pipeline) -> tuple[Reason, ...]:
    if pipeline.order is not None:
        return (Reason("order", pipeline.order.describe()[0], _order_why(pipeline)),)
    if isinstance(pipeline.source, ShuffledStream):
        rows = pipeline.source.window_rows
        return (Reason("order", "window", f"a stream cannot be indexed: rows are mixed in a window of {rows}"),)
    return (Reason("order", "as it comes", "a stream cannot be indexed"),)


def _rank_notes(pipeline: Pipeline) -> tuple[Reason, ...]:
    return (describe_rank(pipeline.rank, pipeline.schedule),) if isinstance(pipeline.rank, Rank) else ()


def _read_notes(pipeline: Pipeline) -> tuple[Reason, ...]:
    reads: Reason | None = getattr(pipeline.source, "reads", None)
    return () if reads is None else (reads,)


def _order_why(pipeline: Pipeline) -> str:
    order: Any = pipeline.order
    if not hasattr(order, "spread_rows"):
        return "rows lie in this order" if order.natural else "any row may come anywhere; computed, not stored"
    mixed = format_nbytes(order.open_blocks * order.block_rows * sum(spec.nbytes for spec in pipeline.specs))
    return (
        f"blocks come anywhere, the rows of {order.open_blocks} of them ({mixed}) are mixed: "
        f"those of one block stay within {order.spread_rows} positions of each other"
    )


def _reading(pipeline: Pipeline, demand: Demand) -> Reading | None:
    """How rows of files are read by our own threads; a device that fetches them takes them from their mappings."""
    fetched = demand.device is not None and demand.device.extents
    if demand.cluster is not None and demand.cluster.rows != "sent":
        return None
    if fetched or not isinstance(pipeline.source, Source) or pipeline.order is None or not demand.sized:
        return None
    row_nbytes = sum(spec.nbytes for spec in pipeline.specs)
    group_rows = max(demand.batch_rows, GROUP_NBYTES // max(1, row_nbytes))
    return plan_reading(
        pipeline.source,
        Need(pipeline.order, len(pipeline.source), group_rows * pipeline.shard_count, demand.host_nbytes),
    )
