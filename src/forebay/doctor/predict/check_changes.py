"""Cures of what is pulled to the host to be looked at there, as changes of a timeline: it is looked at on the device,
and a number comes back. Pure.

Nobody sees what the host computes on what it pulled. What it does right behind a pull, until its next call of the
framework, is taken for that, and goes with the pull. Where there are doubts, a part of it is something else's: whatever
takes longer than going over the bytes a few times; and all of it where that next call sends something, which may have
been made meanwhile.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_of
from forebay.doctor.predict.simulate import UNCERTAIN_WIN
from forebay.doctor.predict.timeline import Action, Operation, Timeline
from forebay.doctor.predict.upload_changes import UPLOADS

__all__ = ["check_on_device", "spent_behind"]

PULLS = ("download",)
CHECKED_BYTES_PER_SECOND = 1e9  # a check that takes longer may be something else: of five, none was as slow as this


def check_on_device(line: int, *, bytes_per_second: float, passes: int, waits: bool, doubts: bool = False) -> Change:
    """The device goes over what this line pulls so many times, at this speed, and a number comes back, waited for or
    not. What the host does behind the pull goes too; with doubts, only a share of it."""

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        for run, share in _behind(timeline, line):
            kept = 1 - share if doubts else 0.0
            for place in run:
                actions[place] = replace(actions[place], seconds=actions[place].seconds * kept)
        for place, action in enumerate(timeline.actions):
            if is_of(action, PULLS, line):
                _look_there(operations, action.queues, bytes_per_second / passes)
                seconds = min(action.seconds, CALL_SECONDS * passes)
                actions[place] = replace(action, seconds=seconds, awaits=action.awaits if waits else ())
        return timeline.changed(actions=actions, operations=operations)

    return change


def spent_behind(timeline: Timeline, line: int) -> tuple[float, float]:
    """Seconds of a step that the host spends on what this line pulled: with doubts, and at most."""
    runs = [(sum(timeline.actions[place].seconds for place in run), share) for run, share in _behind(timeline, line)]
    steps = max(1, timeline.steps)
    return sum(seconds * share for seconds, share in runs) / steps, sum(seconds for seconds, _ in runs) / steps


def _look_there(operations: list[Operation], copies: Collection[int], bytes_per_second: float) -> None:
    for number in copies:
        copy = operations[number]
        seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
        operations[number] = replace(copy, seconds=seconds, engine="compute", nbytes=0, pageable=False)


def _behind(timeline: Timeline, line: int) -> Iterator[tuple[Sequence[int], float]]:
    """What the host does between a pull and its next call, and which share of that is the pull's where there are
    doubts. The timeline is run round after round, so what comes first in it is behind the last pull."""
    actions = timeline.actions
    pulls = [place for place, action in enumerate(actions) if is_of(action, PULLS, line)]
    after_last = pulls[-1] + 1 if pulls else 0
    run: list[int] = []
    behind = bool(pulls)
    nbytes = max((_pulled(timeline, actions[place]) for place in pulls), default=0)  # where records end, one has none
    for place in (*range(after_last, len(actions)), *range(after_last)):
        action = actions[place]
        if is_of(action, PULLS, line):
            behind = True
        elif behind and _is_own_work(action):
            run.append(place)
        elif behind and not _is_anothers(timeline, action):
            yield run, 0.0 if action.kind in UPLOADS else _surely(timeline, run, nbytes)
            run, behind = [], False
    yield run, _surely(timeline, run, nbytes)


def _pulled(timeline: Timeline, action: Action) -> int:
    return sum(timeline.operations[number].nbytes for number in action.queues)


def _surely(timeline: Timeline, run: Sequence[int], nbytes: int) -> float:
    """Which share of a run is taken for a check of so many bytes, where there are doubts."""
    seconds = sum(timeline.actions[place].seconds for place in run)
    return min(1 - UNCERTAIN_WIN, nbytes / CHECKED_BYTES_PER_SECOND / seconds) if seconds else 0.0


def _is_own_work(action: Action) -> bool:
    return action.kind == "work" and not action.queues and not action.awaits


def _is_anothers(timeline: Timeline, action: Action) -> bool:
    """Whether another thread sends something meanwhile."""
    copies = all(timeline.operations[number].engine != "compute" for number in action.queues)
    return bool(action.queues) and copies and not action.seconds and action.kind not in UPLOADS
