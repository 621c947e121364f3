"""Cures as changes of a timeline; `upload_changes` and `check_changes` have more.

A change takes a timeline and returns another one. To combine changes, apply one after the other; gains cannot be added.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, steady_step_seconds

__all__ = [
    "CALL_SECONDS",
    "LAUNCHING_KINDS",
    "Change",
    "defer_waits",
    "is_call_of",
    "launch_as_graph",
    "move_to_device",
    "chain",
    "prefetch_input",
    "remove_calls",
    "remove_actions",
]

Change = Callable[[Timeline], Timeline]

CALL_SECONDS = 8e-6  # host time to queue an asynchronous copy
READ_KINDS = ("download", "sync")
LAUNCHING_KINDS = ("launch", "work", "run")
CALLING_KINDS = ("launch", "transform")  # actions that only queue work, so compilation removes their time
LONGEST_CALLING_SECONDS = 1e-3  # between two launches; longer work belongs to the script, not to the framework


def chain(changes: Iterable[Change]) -> Change:
    """Combine changes into one."""
    several = tuple(changes)

    def change(timeline: Timeline) -> Timeline:
        for each in several:
            timeline = each(timeline)
        return timeline

    return change


def remove_calls(line: int, kinds: Collection[str]) -> Change:
    """Remove calls of these kinds on a line, as if they ran once before the loop."""

    def change(timeline: Timeline) -> Timeline:
        gone = {number for number, action in enumerate(timeline.actions) if is_call_of(action, kinds, line)}
        return remove_actions(timeline, gone)

    return change


def defer_waits(line: int, *, every: int = 0) -> Change:
    """Remove the waits of a line, or keep every n-th one; the value arrives later."""

    def change(timeline: Timeline) -> Timeline:
        actions, seen = [], 0
        for action in timeline.actions:
            if is_call_of(action, READ_KINDS, line):
                seen += bool(action.awaits)
                waits = bool(every) and seen % every == 0
                action = action if waits else replace(action, seconds=0.0, awaits=())
            actions.append(action)
        return timeline.changed(actions=actions)

    return change


def move_to_device(*lines: int, speedup: float = 10.0) -> Change:
    """Run the work of these lines on the device, without moving data to the CPU.

    The change removes copies and waits. The CPU work between the two moves runs on the device, `speedup` times as fast.
    """

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        spent = 0.0  # CPU seconds on data that was moved to the CPU
        for place in _moving_actions(timeline, lines):
            action = actions[place]
            spent += action.seconds
            for number in action.queues:
                worked = replace(
                    operations[number], seconds=spent / speedup, engine="compute", nbytes=0, pageable=False
                )
                operations[number], spent = worked, 0.0
            actions[place] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=())
        _move_compiled_calls(actions, operations, lines, speedup)
        return timeline.changed(actions=actions, operations=operations)

    return change


def _move_compiled_calls(
    actions: list[HostAction], operations: list[DeviceOperation], lines: Collection[int], speedup: float
) -> None:
    """Do the same for copies inside compiled calls.

    The time of such a call after a copy holds both the wait for the copy and the work on the CPU.
    """
    away, copy_seconds, spent = False, 0.0, 0.0
    for place, action in enumerate(actions):
        if action.kind == "run" and (away or copy_seconds):
            spent += max(0.0, action.seconds - copy_seconds) if away else 0.0
            actions[place] = replace(action, seconds=0.0 if away else max(0.0, action.seconds - copy_seconds))
            copy_seconds = 0.0
        for number in action.queues if action.kind != "move" else ():
            copy = operations[number]
            if copy.engine == "compute" or copy.line not in lines:
                continue
            away, copy_seconds = copy.engine == "device to host", copy.seconds
            worked = 0.0 if away else spent / speedup
            operations[number] = replace(copy, seconds=worked, engine="compute", nbytes=0, pageable=False)
            spent = spent if away else 0.0
        if action.ends_step:
            away, copy_seconds = False, 0.0


def _moving_actions(timeline: Timeline, lines: Collection[int]) -> Iterator[int]:
    """Yield the moves of these lines, and the CPU work before the data moves back.

    The work counts only up to the next launch, because later work may serve another purpose.
    """
    away = False
    for place, action in enumerate(timeline.actions):
        moves = action.kind == "move" and action.line in lines
        if moves or (away and action.kind == "work"):
            yield place
        if action.queues or action.ends_step:
            copies = {timeline.operations[number].engine for number in action.queues}
            away = moves and "device to host" in copies and not action.ends_step


def prefetch_input(*, producer_seconds: float) -> Change:
    """Make batches during the step. The loop waits only if a batch takes longer than a step."""

    def change(timeline: Timeline) -> Timeline:
        actions = [replace(action, seconds=0.0) if action.kind == "input" else action for action in timeline.actions]
        return timeline.changed(actions=actions, floor=min(producer_seconds, steady_step_seconds(timeline)))

    return change


def launch_as_graph(*, seconds_each: float, device_share: float = 1.0, seconds_once: float = 0.0) -> Change:
    """Queue the operations of a step as one graph.

    The host needs `seconds_each` per operation and `seconds_once` per step. The device needs `device_share` of its
    present time, because a compiler fuses small operations.
    """

    def change(timeline: Timeline) -> Timeline:
        actions, spent = [], 0.0  # recorded queueing time that the graph's calls have not used yet
        for action in timeline.actions:
            if action.kind in CALLING_KINDS or (
                action.kind in LAUNCHING_KINDS and action.seconds <= LONGEST_CALLING_SECONDS
            ):
                spent += action.seconds
                seconds = min(spent, seconds_each * len(action.queues))
                spent -= seconds
                action = replace(action, seconds=seconds)
            if action.ends_step:
                actions.append(HostAction(min(spent, seconds_once), kind="launch"))
                spent = 0.0
            actions.append(action)
        operations = [
            replace(operation, seconds=operation.seconds * device_share, gap=0.0, latency=0.0)
            if operation.engine == "compute"
            else operation
            for operation in timeline.operations
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def is_call_of(action: HostAction, kinds: Collection[str], line: int) -> bool:
    return action.kind in kinds and action.line == line


def remove_actions(timeline: Timeline, gone: Collection[int]) -> Timeline:
    """Remove the time of these actions and of the operations that they queue."""
    queued = {number for place in gone for number in timeline.actions[place].queues}
    actions = [
        replace(action, seconds=0.0, queues=(), awaits=()) if place in gone else action
        for place, action in enumerate(timeline.actions)
    ]
    return timeline.changed(actions=actions, operations=_zero_operations(timeline, queued))


def _zero_operations(timeline: Timeline, numbers: Collection[int]) -> list[DeviceOperation]:
    """Set the time of these operations to zero; indices stay valid."""
    return [
        replace(operation, seconds=0.0, nbytes=0) if number in numbers else operation
        for number, operation in enumerate(timeline.operations)
    ]
