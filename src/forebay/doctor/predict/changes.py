"""Cures as changes of a timeline: what would not be done, done elsewhere, or done faster. Pure.

Each takes a timeline and gives one. They are combined by applying one after the other, never by adding what they win.
Those of uploads have a file of their own.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from forebay.doctor.predict.timeline import Action, Operation, Timeline, steady

__all__ = [
    "CALL_SECONDS",
    "QUEUEING",
    "Change",
    "defer_waits",
    "is_of",
    "launch_together",
    "move_to_device",
    "one_after_the_other",
    "prefetch_input",
    "remove_calls",
    "without",
]

Change = Callable[[Timeline], Timeline]

CALL_SECONDS = 8e-6  # of the host, to queue a copy that does not wait
READS = ("download", "sync")
QUEUEING = ("launch", "work", "run")
CALLING = ("launch", "transform")  # nothing else than queueing, however long it takes
LONGEST_CALLING = 1e-3  # seconds between two launches: what takes longer is the script's own work, not the framework's


def one_after_the_other(changes: Iterable[Change]) -> Change:
    """Several changes as one."""
    several = tuple(changes)

    def change(timeline: Timeline) -> Timeline:
        for each in several:
            timeline = each(timeline)
        return timeline

    return change


def remove_calls(line: int, kinds: Collection[str]) -> Change:
    """What this line does in calls of these kinds is done once, in front of the loop."""

    def change(timeline: Timeline) -> Timeline:
        gone = {number for number, action in enumerate(timeline.actions) if is_of(action, kinds, line)}
        return without(timeline, gone)

    return change


def defer_waits(line: int, *, every: int = 0) -> Change:
    """This line waits no more for the device, or only every so many times; what it read comes later, by itself."""

    def change(timeline: Timeline) -> Timeline:
        actions, seen = [], 0
        for action in timeline.actions:
            if is_of(action, READS, line):
                seen += bool(action.awaits)
                waits = bool(every) and seen % every == 0
                action = action if waits else replace(action, seconds=0.0, awaits=())
            actions.append(action)
        return timeline.changed(actions=actions)

    return change


def move_to_device(*lines: int, speedup: float = 10.0) -> Change:
    """What these lines move to the CPU and back is worked on where it is: no copy either way, nobody waits, and the
    work itself, all that the loop does from one way to the other, takes the device so many times less."""

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        spent = 0.0  # on what is away
        for place in _moving(timeline, lines):
            action = actions[place]
            spent += action.seconds
            for number in action.queues:
                worked = replace(
                    operations[number], seconds=spent / speedup, engine="compute", nbytes=0, pageable=False
                )
                operations[number], spent = worked, 0.0
            actions[place] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=())
        _move_inside(actions, operations, lines, speedup)
        return timeline.changed(actions=actions, operations=operations)

    return change


def _move_inside(actions: list[Action], operations: list[Operation], lines: Collection[int], speedup: float) -> None:
    """The same of what a compiled call copies by itself. Who runs it stands still while something crosses, and works on
    the CPU from one way to the other: both are in the call's own time, right behind the copy."""
    away, crossing, spent = False, 0.0, 0.0
    for place, action in enumerate(actions):
        if action.kind == "run" and (away or crossing):
            spent += max(0.0, action.seconds - crossing) if away else 0.0
            actions[place] = replace(action, seconds=0.0 if away else max(0.0, action.seconds - crossing))
            crossing = 0.0
        for number in action.queues if action.kind != "move" else ():
            copy = operations[number]
            if copy.engine == "compute" or copy.line not in lines:
                continue
            away, crossing = copy.engine == "device to host", copy.seconds
            worked = 0.0 if away else spent / speedup
            operations[number] = replace(copy, seconds=worked, engine="compute", nbytes=0, pageable=False)
            spent = spent if away else 0.0
        if action.ends_step:
            away, crossing = False, 0.0


def _moving(timeline: Timeline, lines: Collection[int]) -> Iterator[int]:
    """Where these lines move something, and where the loop works from then on until it is moved back; once something
    else is launched, nobody knows what that work is for."""
    away = False
    for place, action in enumerate(timeline.actions):
        moves = action.kind == "move" and action.line in lines
        if moves or (away and action.kind == "work"):
            yield place
        if action.queues or action.ends_step:
            copies = {timeline.operations[number].engine for number in action.queues}
            away = moves and "device to host" in copies and not action.ends_step


def prefetch_input(*, producer_seconds: float) -> Change:
    """Batches are made while the step runs: the loop waits only for what making one takes longer than a step."""

    def change(timeline: Timeline) -> Timeline:
        actions = [replace(action, seconds=0.0) if action.kind == "input" else action for action in timeline.actions]
        return timeline.changed(actions=actions, floor=min(producer_seconds, steady(timeline)))

    return change


def launch_together(*, seconds_each: float, device_share: float = 1.0, seconds_once: float = 0.0) -> Change:
    """Operations are queued as one graph: the host takes so long for each, and once a step, instead of what it takes
    now; the device takes a share of what it takes now, where the compiler puts small operations together."""

    def change(timeline: Timeline) -> Timeline:
        actions, spent = [], 0.0  # what the host spent on queueing before, and has not been given to a launch
        for action in timeline.actions:
            if action.kind in CALLING or (action.kind in QUEUEING and action.seconds <= LONGEST_CALLING):
                spent += action.seconds
                seconds = min(spent, seconds_each * len(action.queues))
                spent -= seconds
                action = replace(action, seconds=seconds)
            if action.ends_step:
                actions.append(Action(min(spent, seconds_once), kind="launch"))
                spent = 0.0
            actions.append(action)
        operations = [
            replace(operation, seconds=operation.seconds * device_share, turn=0.0, latency=0.0)
            if operation.engine == "compute"
            else operation
            for operation in timeline.operations
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def is_of(action: Action, kinds: Collection[str], line: int) -> bool:
    return action.kind in kinds and action.line == line


def without(timeline: Timeline, gone: Collection[int]) -> Timeline:
    """Neither these actions nor what they queue."""
    queued = {number for place in gone for number in timeline.actions[place].queues}
    actions = [
        replace(action, seconds=0.0, queues=(), awaits=()) if place in gone else action
        for place, action in enumerate(timeline.actions)
    ]
    return timeline.changed(actions=actions, operations=_done_at_once(timeline, queued))


def _done_at_once(timeline: Timeline, numbers: Collection[int]) -> list[Operation]:
    """The same operations, these taking no time; numbers stay what they are."""
    return [
        replace(operation, seconds=0.0, nbytes=0) if number in numbers else operation
        for number, operation in enumerate(timeline.operations)
    ]
