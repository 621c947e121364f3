"""From a pipeline to everything a feed runs on: hand-off, engine, plan, work and threads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay import names
from forebay.afterwards import Afterwards
from forebay.collect import BatchWork, StreamWork
from forebay.consumer import Consumer
from forebay.demand import device_demand, extents_of, fetches_rows, given_by, split_transforms
from forebay.engines.base import Engine
from forebay.errors import PipelineError
from forebay.finish import Finisher
from forebay.gather import Fetches, IndexedWork
from forebay.handoff.base import HandOff
from forebay.infer import Traced, trace, with_padding
from forebay.machine import Machine
from forebay.pipeline import Pipeline
from forebay.place import Place, find_place
from forebay.plan import Demand, Plan
from forebay.planning import GROUP_NBYTES, make_plan
from forebay.ranks import Rank, check_steps, describe_rank
from forebay.reading.choose import Need, Reading
from forebay.reading.opening import open_reader, plan_reading
from forebay.reading.reader import Reader
from forebay.reason import Reason
from forebay.runner import Runner
from forebay.slot import Slot
from forebay.sources.base import Source
from forebay.sources.batches import BatchStream
from forebay.sources.items import ItemSource
from forebay.sources.iterables import RowStream
from forebay.sources.streams import ShuffledStream
from forebay.spec import ArraySpec, Structure, format_nbytes, parse_nbytes
from forebay.spread import spread
from forebay.trace import Recorder
from forebay.transforms import Cast, Transform
from forebay.work import Work

__all__ = ["Built", "build"]

ALL = 1 << 62  # a budget that holds nothing back: slots of a device were counted by its own


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of a feed."""

    plan: Plan
    runner: Runner
    recorder: Recorder
    hand_off: HandOff
    after: Afterwards | None = None  # what is still to be done to a batch on its device


def build(
    pipeline: Pipeline,
    *,
    to: str,
    device: str | Engine,
    resident: str,
    host_bytes: int | str,
    device_bytes: int | str | None,
) -> Built:
    """Plan a feed of the pipeline and make it ready to run; nothing runs yet."""
    _check(pipeline, resident)
    place = find_place(device, to)
    host_nbytes = parse_nbytes(host_bytes, "host_bytes")
    budget = None if device_bytes is None else parse_nbytes(device_bytes, "device_bytes")
    _check_place(pipeline, place, resident, budget)
    pipeline = _loosened(pipeline)
    asked, afterwards = _trace(pipeline, place)
    traced, notes = _as_held(pipeline, place, asked)
    demand = _demand(pipeline, place, traced, (*place.notes, *notes), host_nbytes)
    demand = replace(
        demand,
        afterwards=afterwards,
        given=given_by(traced, afterwards, place.hand_off),
        device=device_demand(pipeline, place, asked.transforms, resident, budget),
    )
    demand = replace(demand, cluster=spread(pipeline, demand))
    demand = replace(demand, reading=_reading(pipeline, demand))
    plan = make_plan(demand, Machine.here().cores)
    recorder, consumer = Recorder(), Consumer()
    finisher = _finisher(pipeline, plan, traced, recorder)
    work = _work(pipeline, plan, finisher, recorder, consumer, place)
    runner = Runner(
        work,
        place.engine,
        lambda: Slot(place.engine, plan.layout, shared_nbytes=finisher.input_nbytes),
        slots=plan.slots,
        threads=plan.threads,
        consumer=consumer,
        recorder=recorder,
        budget_nbytes=host_nbytes if plan.transport is None else ALL,
    )
    after = None
    if afterwards and place.side is not None:
        after = Afterwards(afterwards, traced.structure, place.side, first=len(pipeline.transforms) - len(afterwards))
    return Built(plan, runner, recorder, place.hand_off, after)


def _check(pipeline: Pipeline, resident: str) -> None:
    if pipeline.batching is None and not isinstance(pipeline.source, BatchStream):
        raise PipelineError("the pipeline has no batch size: call batch(n) before feed().")
    if isinstance(pipeline.rank, Rank) and pipeline.rank.count > 1:
        _check_rank(pipeline, pipeline.rank)
    if pipeline.indexed and pipeline.schedule.batches == 0:
        schedule = pipeline.schedule
        raise PipelineError(
            f"there is nothing to feed: {schedule.pass_rows} rows over {schedule.shard_count} shards give shard "
            f"{schedule.shard_index} not a single batch of {schedule.batch_rows}."
        )
    if resident not in ("auto", "always", "never"):
        raise PipelineError(f"resident={resident!r} is unknown: choose 'auto', 'always' or 'never'.")


def _check_rank(pipeline: Pipeline, rank: Rank) -> None:
    """All ranks must take the same number of steps, or those that go on wait for the others for ever."""
    if pipeline.indexed:
        check_steps(rank, pipeline.schedule, 0)
    elif pipeline.batching is None:
        raise PipelineError(
            "shard('auto') cannot share out ready-made batches: their number need not be the same for all "
            f"{rank.count} ranks. Let the loader make those of its rank, or say shard(index, count)."
        )
    elif not pipeline.batching.drop_remainder:
        raise PipelineError(
            f"a stream may end with rows for some of {rank.count} ranks only, and the others would wait for them: "
            "say batch(..., drop_remainder=True), which leaves that step out."
        )


def _check_place(pipeline: Pipeline, place: Place, resident: str, budget: int | None) -> None:
    """What only a device can do is refused where there is none."""
    if place.side is not None:
        return
    if resident == "always":
        raise PipelineError("resident='always' needs a device to keep the data on, and this feeds the CPU: use 'auto'.")
    if budget is not None:
        raise PipelineError("device_bytes= is a budget for a device, and this feeds the CPU: leave it out.")
    placed = [transform for transform in pipeline.transforms if transform.where == "device"]
    if placed:
        raise PipelineError(
            f"{placed[0]} asks for where='device', and this feeds the CPU: choose 'thread', 'process' or 'ray'."
        )


def _loosened(pipeline: Pipeline) -> Pipeline:
    """Padding takes rows of any length, straight from whoever gives them; without it, none may differ."""
    if not pipeline.padded and any(spec.ragged for spec in pipeline.specs):
        raise PipelineError(
            f"rows may differ in length ({_fields(pipeline)}): say what to fill them up with, batch(n, pad=0)."
        )
    if not pipeline.padded or pipeline.indexed:
        return pipeline
    if not isinstance(pipeline.source, RowStream):
        raise PipelineError(
            "rows to be padded come straight from the generator: take, repeat and shuffle there, or after batch()."
        )
    return replace(pipeline, source=pipeline.source.loosened())


def _fields(pipeline: Pipeline) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in zip(pipeline.structure.paths, pipeline.specs, strict=True))


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


def _reader(pipeline: Pipeline, plan: Plan) -> Reader | None:
    reading = plan.demand.reading
    if reading is None or plan.transport is not None:
        return None
    assert isinstance(pipeline.source, Source)
    return open_reader(pipeline.source, reading)


def _finisher(pipeline: Pipeline, plan: Plan, traced: Traced, recorder: Recorder) -> Finisher:
    between = traced.steps[len(plan.head)]
    if plan.demand.cluster is None:
        return Finisher(plan, pipeline.structure, between, schedule=pipeline.schedule)
    return names.ray_finisher()(plan, pipeline, between, recorder)  # type: ignore[no-any-return]  # by name


def _work(
    pipeline: Pipeline, plan: Plan, finisher: Finisher, recorder: Recorder, consumer: Consumer, place: Place
) -> Work:
    if pipeline.indexed:
        fetcher = _fetcher(pipeline, plan, recorder, place)
        cluster = plan.demand.cluster
        elsewhere: Any = finisher if cluster is not None and cluster.rows != "sent" else None
        return IndexedWork(pipeline, plan, finisher, recorder, fetcher, _reader(pipeline, plan), elsewhere)
    kind = BatchWork if isinstance(pipeline.source, BatchStream) else StreamWork
    return kind(pipeline, plan, finisher, recorder, consumer)


def _fetcher(pipeline: Pipeline, plan: Plan, recorder: Recorder, place: Place) -> Fetches | None:
    transport = plan.transport
    if transport is None:
        return None
    fetcher: Fetches = names.fetcher()(
        place.engine,
        pipeline.source,
        extents_of(pipeline),
        ways=transport.ways,
        kept_rows=transport.kept_rows,
        threads=transport.threads,
        recorder=recorder,
        held=plan.layout.specs,
    )
    return fetcher
