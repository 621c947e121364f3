"""From what is asked to everything a feed runs on: hand-off, engine, plan, work and threads."""

from dataclasses import dataclass
from typing import Any

from forebay.core import registry
from forebay.core.handoff import HandOff
from forebay.core.machine import Machine
from forebay.core.recorder import Recorder
from forebay.core.source import Source
from forebay.feed.device_transforms import Afterwards
from forebay.feed.filler import Work
from forebay.feed.indexed_filler import Fetches, IndexedWork
from forebay.feed.runner import Runner
from forebay.feed.slot import Slot
from forebay.feed.stream_filler import BatchWork, StreamWork
from forebay.feed.throttle import Consumer
from forebay.feed.transform_stage import Finisher
from forebay.pipeline.device_request import extents_of
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan
from forebay.pipeline.planner import make_plan
from forebay.pipeline.request import Asked
from forebay.pipeline.target import Place
from forebay.pipeline.trace import Traced
from forebay.sources.direct.open_reader import open_reader
from forebay.sources.direct.reader import Reader
from forebay.sources.streams.batches import BatchStream

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


def build(asked: Asked) -> Built:
    """Plan a feed and make it ready to run; nothing runs yet."""
    pipeline, place, traced = asked.pipeline, asked.place, asked.traced
    plan = make_plan(asked.demand, Machine.here().cores)
    recorder, consumer = Recorder(), Consumer()
    finisher = _finisher(pipeline, plan, traced, recorder)
    runner = Runner(
        _work(pipeline, plan, finisher, recorder, consumer, place),
        place.engine,
        lambda: Slot(place.engine, plan.layout, shared_nbytes=finisher.input_nbytes),
        slots=plan.slots,
        threads=plan.threads,
        consumer=consumer,
        recorder=recorder,
        budget_nbytes=plan.demand.host_nbytes if plan.transport is None else ALL,
    )
    return Built(plan, runner, recorder, place.hand_off, _afterwards(asked))


def _afterwards(asked: Asked) -> Afterwards | None:
    """What is left to the device, by its place among the transforms."""
    left, side = asked.demand.afterwards, asked.place.side
    if not left or side is None:
        return None
    return Afterwards(left, asked.traced.structure, side, first=len(asked.pipeline.transforms) - len(left))


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
    return registry.ray_finisher()(plan, pipeline, between, recorder)  # type: ignore[no-any-return]  # by name


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
    fetcher: Fetches = registry.fetcher()(
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
