"""Cures as changes of a timeline: what would not be done, done elsewhere, or done faster. Pure.

Each takes a timeline and gives one. They are combined by applying one after the other, never by adding what they win.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from forebay.doctor.predict.timeline import Action, Operation, Timeline

__all__ = [
    "copy_faster",
    "defer_waits",
    "launch_together",
    "overlap_copies",
    "prefetch_input",
    "remove_uploads",
]

Change = Callable[[Timeline], Timeline]

CALL_SECONDS = 8e-6  # of the host, to queue a copy that does not wait
COPY_STREAM = -1  # a stream that nothing else uses


def remove_uploads(line: int, *, share: float = 1.0) -> Change:
    """This line uploads no more: neither the call nor the copy is left; or only a share of its uploads goes."""

    def change(timeline: Timeline) -> Timeline:
        found = [number for number, action in enumerate(timeline.actions) if _is(action, "upload", line)]
        gone = set(found[: round(len(found) * share)])
        copies = {number for place in gone for number in timeline.actions[place].queues}
        actions = [
            replace(action, seconds=0.0, queues=(), awaits=()) if place in gone else action
            for place, action in enumerate(timeline.actions)
        ]
        return timeline.changed(actions=actions, operations=_done_at_once(timeline, copies))

    return change


def defer_waits(line: int, *, every: int = 0) -> Change:
    """This line waits no more for the device, or only every so many times; what it read comes later, by itself."""

    def change(timeline: Timeline) -> Timeline:
        actions, seen = [], 0
        for action in timeline.actions:
            if not _is(action, "download", line):
                actions.append(action)
                continue
            seen += 1
            waits = bool(every) and seen % every == 0
            actions.append(action if waits else replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=()))
        return timeline.changed(actions=actions)

    return change


def copy_faster(line: int, *, bytes_per_second: float) -> Change:
    """This line copies from page-locked memory: the call only queues the copy, which runs at the link's speed."""

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        actions = []
        for action in timeline.actions:
            if not _is(action, "upload", line):
                actions.append(action)
                continue
            for number in action.queues:
                copy = operations[number]
                operations[number] = replace(copy, seconds=min(copy.seconds, copy.nbytes / bytes_per_second))
            actions.append(replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=()))
        return timeline.changed(actions=actions, operations=operations)

    return change


def overlap_copies(line: int) -> Change:
    """The copies of this line go on a stream of their own, a step ahead of who needs them."""

    def change(timeline: Timeline) -> Timeline:
        own = {number for action in timeline.actions if _is(action, "upload", line) for number in action.queues}
        operations = [
            replace(operation, stream=COPY_STREAM, after=()) if number in own else operation
            for number, operation in enumerate(timeline.operations)
        ]
        return timeline.changed(operations=operations)

    return change


def prefetch_input(*, producer_seconds: float) -> Change:
    """Batches are made while the step runs: the loop waits only for what making one takes longer than a step."""

    def change(timeline: Timeline) -> Timeline:
        waits = [action for action in timeline.actions if action.kind == "input"]
        steps = sum(action.ends_step for action in timeline.actions) or 1
        rest = sum(action.seconds for action in timeline.actions if action.kind != "input") / steps
        left = max(0.0, producer_seconds - rest) * steps / max(1, len(waits))
        actions = [
            replace(action, seconds=min(action.seconds, left)) if action.kind == "input" else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions)

    return change


def launch_together(*, seconds_each: float) -> Change:
    """Operations are queued as one graph: the host takes so long for each, instead of what it takes now."""

    def change(timeline: Timeline) -> Timeline:
        actions = [
            replace(action, seconds=min(action.seconds, seconds_each * len(action.queues)))
            if action.kind == "launch"
            else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions)

    return change


def _is(action: Action, kind: str, line: int) -> bool:
    return action.kind == kind and action.line == line


def _done_at_once(timeline: Timeline, numbers: Collection[int]) -> list[Operation]:
    """The same operations, these taking no time; numbers stay what they are."""
    return [
        replace(operation, seconds=0.0) if number in numbers else operation
        for number, operation in enumerate(timeline.operations)
    ]
