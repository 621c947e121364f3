"""From what is asked to everything a feed runs on: hand-off, engine, plan, work and threads."""

from dataclasses import dataclass
from typing import Any

from forebay import names
from forebay.afterwards import Afterwards
from forebay.asking import Asked
from forebay.collect import BatchWork, StreamWork
from forebay.consumer import Consumer
from forebay.demand import extents_of
from forebay.finish import Finisher
from forebay.gather import Fetches, IndexedWork
from forebay.handoff.base import HandOff
from forebay.infer import Traced
from forebay.machine import Machine
from forebay.pipeline import Pipeline
from forebay.place import Place
from forebay.plan import Plan
from forebay.planning import make_plan
from forebay.reading.opening import open_reader
from forebay.reading.reader import Reader
from forebay.runner import Runner
from forebay.slot import Slot
from forebay.sources.base import Source
from forebay.sources.batches import BatchStream
from forebay.trace import Recorder
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
