"""A timeline out of a capture: what the loop's thread did in the recorded steps, what each call queued on the device,
and which calls stood still until which operation was done. Pure.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from forebay.doctor.analyse.attribution import NOBODY
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.model.device_records import CopyKind, MemoryKind, RecordKind
from forebay.doctor.predict.calls import Call, Queued
from forebay.doctor.predict.dependencies import released_by, turns_of
from forebay.doctor.predict.host_time import WORK, Piece, pieces_of
from forebay.doctor.predict.recorded_calls import calls_in
from forebay.doctor.predict.timeline import Action, Engine, Operation, Timeline

__all__ = ["build", "typical_steps"]

MOST_OPERATIONS = 10_000  # in a timeline: as many whole steps as that allows, so that it is run in no time
UNLIKE = 0.3  # of the median step: what is further from it is no typical step
COPY_CALL_SECONDS = 3e-6  # until a copy that is waited for has been queued
STAGING = -2  # the stream of whatever makes data ready to cross

_ENGINES: dict[int, Engine] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
}
_PRODUCTS = re.compile("gemm|gemv|cutlass|nvjet|matmul|conv|dot|flash|attention|cudnn", re.IGNORECASE)


def build(case: Case) -> Timeline | None:
    """None where there is nothing to run again: no steps, or a GPU that was not recorded."""
    if case.device is not None:
        return _with_device(case.device)
    return None if case.has_gpu or case.steps is None else _host_only(case)


def typical_steps(view: DeviceView) -> list[tuple[int, int]]:
    """Recorded steps of about the same length, as many as a timeline may hold and as there are operations for."""
    steps = [*pairwise(view.edges.tolist())]
    whole = [step for step, is_whole in zip(steps, view.are_whole, strict=True) if is_whole]
    middle = median(end - start for start, end in whole)
    alike = [(start, end) for start, end in whole if abs(end - start - middle) <= UNLIKE * middle]
    most = max(2, int(MOST_OPERATIONS * len(steps) / max(1, len(view.operations))))
    if view.lags:
        most = min(most, len(view.operations) // view.period)
    return (alike if len(alike) >= len(steps) / 2 else whole)[:most]


def _with_device(view: DeviceView) -> Timeline:
    """Operations are numbered anew, in the order in which they are queued."""
    steps = [pieces_of(view.events, view.thread, *step) for step in typical_steps(view)]
    queued = calls_in(view, steps)
    numbers = {place: at for at, place in enumerate(place for call in queued.calls for place in call.queues)}
    known = numbers | _stand_ins(view, queued, numbers)
    coming, actions = deque(queued.calls), []
    for pieces in steps:
        actions += [*_actions(pieces, coming, queued, known), Action(0.0, ends_step=True)]
    return Timeline(tuple(actions), tuple(_operations(view, queued, numbers, known)))


def _stand_ins(view: DeviceView, queued: Queued, numbers: dict[int, int]) -> dict[int, int]:
    """For operations that were asked for in other steps, what comes in their place in the step of the timeline that
    is before theirs: the last one is before the first, as the timeline is run round after round."""
    asked = np.searchsorted(view.edges, queued.when, "right") - 1
    order = np.lexsort((view.operations["start"], queued.when))
    steps: dict[int, list[int]] = {}
    for place in order[queued.when[order] >= 0].tolist():
        steps.setdefault(int(asked[place]), []).append(place)
    kept = sorted({int(asked[place]) for place in numbers if place < len(asked)})
    found: dict[int, int] = {}
    for step in steps.keys() - kept:
        like = max((other for other in kept if other < step), default=kept[-1] if kept else step)
        pairs = zip(reversed(steps[step]), reversed(steps[like]), strict=False)
        found |= {place: numbers[other] for place, other in pairs if other in numbers}
    return found


def _host_only(case: Case) -> Timeline:
    """Every call takes what it took: what a device or other threads did for it is part of that."""
    assert case.steps is not None
    scale = case.step_seconds / case.steps.seconds if case.steps.seconds else 1.0
    actions: list[Action] = []
    for start, end in pairwise(case.steps.edges):
        pieces = pieces_of(case.capture.events, case.steps.thread, start, end)
        actions += [Action(piece.seconds * scale, line=piece.line, kind=piece.kind) for piece in pieces]
        actions.append(Action(0.0, ends_step=True))
    return Timeline(tuple(actions))


def _actions(pieces: Sequence[Piece], coming: deque[Call], queued: Queued, numbers: dict[int, int]) -> Iterator[Action]:
    """Pieces of a step, cut where calls begin and end."""
    for piece in pieces:
        now = piece.start
        while coming and coming[0].start < piece.end:
            call = coming.popleft()
            if call.start > now:
                yield Action((call.start - now) / 1e9, line=piece.line, kind=piece.kind)
            yield from _called(call, queued, piece, numbers)
            now = max(now, call.end)
        if piece.end > now:
            yield Action((piece.end - now) / 1e9, line=piece.line, kind=piece.kind)


def _called(call: Call, queued: Queued, piece: Piece, numbers: dict[int, int]) -> Iterator[Action]:
    """A call queues first and stands still then, or goes on."""
    own = call.own_nanoseconds(queued.ends) / 1e9
    kind, line = ("launch", -1) if call.launches or (piece.kind == WORK and call.queues) else (piece.kind, piece.line)
    queues = tuple(numbers[number] for number in call.queues)
    awaits = tuple(numbers[number] for number in call.awaits if number in numbers)
    if not awaits:
        before = min(own, (queued.at(call) - call.start) / 1e9)
        yield Action(before, queues, line=line, kind=kind)
        if own > before:
            yield Action(own - before, line=line, kind=kind)
        return
    if queues:
        yield Action(min(own, COPY_CALL_SECONDS), queues, line=line, kind=kind)
        own = max(0.0, own - COPY_CALL_SECONDS)
    yield Action(own, awaits=awaits, line=line, kind=kind, sleeps=call.sleeps)


def _operations(
    view: DeviceView, queued: Queued, numbers: dict[int, int], known: dict[int, int]
) -> Iterator[Operation]:
    """With what kept each back, as far as that is to be seen: an operation of another stream, or the way there."""
    count = len(view.operations)
    released = {} if view.lags else released_by(view.operations, queued.when)
    turns = turns_of(view.operations, queued.when)
    products = [bool(_PRODUCTS.search(name)) for name in view.names]
    for place in numbers:
        if place >= count:  # it makes a copy's data ready
            staging = queued.staged[place - count] / 1e9
            yield Operation(staging, STAGING, line=int(view.lines[place - count]), pageable=True)
            continue
        record = view.operations[place]
        before, latency = released.get(place, (NOBODY, 0))
        if place in queued.staged:
            before, latency = place + count, 0
        copies = record["kind"] == RecordKind.MEMCPY
        yield Operation(
            seconds=(int(record["end"]) - int(record["start"])) / 1e9,
            stream=int(record["stream"]),
            engine=_ENGINES.get(int(record["what"]), "compute") if copies else "compute",
            line=int(view.lines[place]),
            nbytes=int(record["nbytes"]) if copies else 0,
            after=(known[before],) if before in known else (),
            turn=int(turns[place]) / 1e9,
            latency=latency / 1e9,
            pageable=bool(copies and MemoryKind.PAGEABLE in (record["source"], record["target"])),
            multiplies=not copies and products[record["name"]],
        )
