"""Cures of what crosses to the device, as changes of a timeline: not at all, faster, ahead, together, less. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_of, without
from forebay.doctor.predict.timeline import Action, Timeline, steady

__all__ = [
    "convert_ahead",
    "copy_faster",
    "gather_on_device",
    "make_ahead",
    "narrow",
    "overlap_copies",
    "remove_uploads",
    "send_ahead",
    "send_together",
]

COPY_STREAM = -1  # a stream that nothing else uses
UPLOADS = ("upload", "move")  # what a line uploads, or an operation on the device pulls over from the host


def remove_uploads(line: int, *, share: float = 1.0) -> Change:
    """This line uploads no more: neither the call nor the copy is left; or only a share of its uploads goes."""

    def change(timeline: Timeline) -> Timeline:
        found = [number for number, action in enumerate(timeline.actions) if is_of(action, UPLOADS, line)]
        gone = set(found[: round(len(found) * share)])
        return without(timeline, gone)

    return change


def copy_faster(line: int, *, bytes_per_second: float) -> Change:
    """This line copies from page-locked memory: the call only queues the copy, which runs at the link's speed."""

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for number in _copies_of(timeline, line):
            copy = operations[number]
            seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
            operations[number] = replace(copy, seconds=seconds, pageable=False)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=())
            if is_of(action, UPLOADS, line)
            else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def overlap_copies(line: int) -> Change:
    """The copies of this line go on a stream of their own, a step ahead of who needs them: nobody waits for them."""

    def change(timeline: Timeline) -> Timeline:
        own = set(_copies_of(timeline, line))
        operations = [
            replace(operation, stream=COPY_STREAM, after=())
            if number in own
            else replace(operation, after=tuple(before for before in operation.after if before not in own))
            for number, operation in enumerate(timeline.operations)
        ]
        actions = [
            replace(action, awaits=tuple(awaited for awaited in action.awaits if awaited not in own))
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def send_ahead(
    line: int, *, bytes_per_second: float, producer_bytes_per_second: float, making_bytes_per_second: float = 0.0
) -> Change:
    """A thread makes the next batch and sends it, page-locked, while the step runs; the loop takes what lies ready.
    With a speed of making given, what the loop does right before, putting the batch together, goes too."""

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[number].nbytes for number in _copies_of(timeline, line))
        making = nbytes / max(1, timeline.steps) / producer_bytes_per_second
        made = _without_making(timeline, line, making_bytes_per_second) if making_bytes_per_second else timeline
        ahead = overlap_copies(line)(copy_faster(line, bytes_per_second=bytes_per_second)(made))
        return ahead.changed(floor=min(making, steady(timeline)))

    return change


def convert_ahead(line: int, *, making_bytes_per_second: float, producer_bytes_per_second: float) -> Change:
    """Other threads make the next batch while the step runs; it crosses as it does now, when the loop takes it."""

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[number].nbytes for number in _copies_of(timeline, line))
        made = _without_making(timeline, line, making_bytes_per_second)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS)) if is_of(action, UPLOADS, line) else action
            for action in made.actions
        ]
        making = nbytes / max(1, timeline.steps) / producer_bytes_per_second
        return made.changed(actions=actions, floor=min(making, steady(timeline)))

    return change


def make_ahead(line: int, *, seconds: float, producer_seconds: float) -> Change:
    """What the loop does for so long in front of each upload, making the batch, others do while the step runs."""

    def change(timeline: Timeline) -> Timeline:
        actions = list(timeline.actions)
        for place, action in enumerate(timeline.actions):
            if is_of(action, UPLOADS, line) and action.queues:
                _shorten_before(actions, place, line, seconds)
        return timeline.changed(actions=actions, floor=min(producer_seconds, steady(timeline)))

    return change


def send_together(line: int, *, bytes_per_second: float, host_bytes_per_second: float) -> Change:
    """What this line uploads in many calls of a step it uploads in one: the host puts the data together first."""

    def change(timeline: Timeline) -> Timeline:
        actions, operations = [], list(timeline.operations)
        sent: list[int] = []  # in this step so far
        for action in timeline.actions:
            if is_of(action, UPLOADS, line):
                more = bool(sent) and (bool(action.queues) or len(sent) > 1)
                sent += action.queues
                action = replace(action, seconds=0.0, queues=(), awaits=()) if more else action
            elif action.ends_step and sent:
                nbytes, first = sum(operations[number].nbytes for number in sent), operations[sent[0]]
                actions.append(Action(nbytes / host_bytes_per_second, line=line))
                seconds = max(first.seconds, nbytes / bytes_per_second)
                operations[sent[0]] = replace(first, seconds=seconds, nbytes=nbytes)
                sent = []
            actions.append(action)
        return timeline.changed(actions=actions, operations=operations)

    return change


def narrow(line: int, *, share: float, kind: str = "upload") -> Change:
    """Only so much of this line's bytes crosses, because each number is narrower or there are fewer of them."""

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for number in _copies_of(timeline, line, kind):
            copy = operations[number]
            operations[number] = replace(copy, seconds=copy.seconds * share, nbytes=int(copy.nbytes * share))
        actions = [
            replace(action, seconds=action.seconds * share) if is_of(action, (kind,), line) else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def gather_on_device(
    line: int, *, gather_bytes_per_second: float, making_bytes_per_second: float = 0.0, waits: bool = False
) -> Change:
    """The data lies on the device, and this line takes its rows there: what crosses is their numbers, which may be
    waited for as the rows are now. Of the host's own work right before, what put the batch together goes too."""

    def change(timeline: Timeline) -> Timeline:
        made = _without_making(timeline, line, making_bytes_per_second) if making_bytes_per_second else timeline
        operations, actions = list(made.operations), list(made.actions)
        for place, action in enumerate(made.actions):
            if not is_of(action, UPLOADS, line):
                continue
            for number in action.queues:
                taken = operations[number].nbytes / gather_bytes_per_second
                operations[number] = replace(operations[number], seconds=taken, engine="compute", nbytes=0)
            awaits = action.awaits if waits else ()
            actions[place] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=awaits)
        return made.changed(actions=actions, operations=operations)

    return change


def _copies_of(timeline: Timeline, line: int, kind: str = "upload") -> Iterator[int]:
    """What calls of this kind queue; with uploads, the copies that compiled calls make by themselves."""
    for action in timeline.actions:
        if is_of(action, UPLOADS if kind == "upload" else (kind,), line):
            yield from action.queues
        elif kind == "upload" and is_of(action, ("run",), line):
            yield from (number for number in action.queues if timeline.operations[number].engine == "host to device")


def _without_making(timeline: Timeline, line: int, bytes_per_second: float) -> Timeline:
    """The host does not put together what this line uploads. Nobody saw how long that takes: rows are gathered at this
    speed, but no faster than the upload itself copies the same bytes into fresh memory, where it does."""
    actions = list(timeline.actions)
    for place, action in enumerate(timeline.actions):
        if is_of(action, UPLOADS, line) and action.queues:
            nbytes = sum(timeline.operations[number].nbytes for number in action.queues)
            copying = _own_seconds(timeline, place, line)
            _shorten_before(actions, place, line, max(copying, nbytes / bytes_per_second))
    return timeline.changed(actions=actions)


def _own_seconds(timeline: Timeline, place: int, line: int) -> float:
    """What an upload takes the host itself, before and after it queues the copy."""
    actions = timeline.actions
    own = actions[place].seconds
    for beside in (range(place - 1, -1, -1), range(place + 1, len(actions))):
        for other in beside:
            if not is_of(actions[other], UPLOADS, line) or actions[other].queues:
                break
            own += actions[other].seconds
    return own


def _shorten_before(actions: list[Action], place: int, line: int, seconds: float) -> None:
    """Take the making of a batch off the work in front of its upload, as far as there is any in the step."""
    while place > 0 and seconds > 0:
        place -= 1
        action = actions[place]
        if action.ends_step or not (action.kind in ("work", "launch") or is_of(action, UPLOADS, line)):
            return
        if action.kind == "work":
            actions[place] = replace(action, seconds=max(0.0, action.seconds - seconds))
            seconds -= action.seconds
