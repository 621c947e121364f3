"""Cures of uploads as changes of a timeline."""

from collections.abc import Iterator
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_call_of, remove_actions
from forebay.doctor.predict.timeline import HostAction, Timeline, steady_step_seconds

__all__ = [
    "prefetch_conversion",
    "page_lock_copies",
    "gather_on_device",
    "prefetch_batches",
    "narrow_dtype",
    "overlap_copies",
    "remove_uploads",
    "prefetch_uploads",
    "merge_uploads",
]

COPY_STREAM = -1  # a stream without other operations
UPLOAD_KINDS = ("upload", "move")  # explicit uploads, and moves that an operation makes


def remove_uploads(line: int, *, share: float = 1.0) -> Change:
    """Remove the uploads of a line, or a share of them."""

    def change(timeline: Timeline) -> Timeline:
        found = [number for number, action in enumerate(timeline.actions) if is_call_of(action, UPLOAD_KINDS, line)]
        gone = set(found[: round(len(found) * share)])
        return remove_actions(timeline, gone)

    return change


def page_lock_copies(line: int, *, bytes_per_second: float) -> Change:
    """Copy from page-locked memory. The call only queues the copy, which runs at the link's speed."""

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for number in _copies_of(timeline, line):
            copy = operations[number]
            seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
            operations[number] = replace(copy, seconds=seconds, pageable=False)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=())
            if is_call_of(action, UPLOAD_KINDS, line)
            else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def overlap_copies(line: int) -> Change:
    """Run the copies of a line one step early, on their own stream. Nothing waits for them."""

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


def prefetch_uploads(
    line: int, *, bytes_per_second: float, producer_bytes_per_second: float, making_bytes_per_second: float = 0.0
) -> Change:
    """Let a thread make and upload the next batch from page-locked memory during the step.

    With `making_bytes_per_second`, the assembly of the batch in the loop is removed too.
    """

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[number].nbytes for number in _copies_of(timeline, line))
        making = nbytes / max(1, timeline.steps) / producer_bytes_per_second
        made = _remove_batch_making(timeline, line, making_bytes_per_second) if making_bytes_per_second else timeline
        prefetched = overlap_copies(line)(page_lock_copies(line, bytes_per_second=bytes_per_second)(made))
        return prefetched.changed(floor=min(making, steady_step_seconds(timeline)))

    return change


def prefetch_conversion(line: int, *, making_bytes_per_second: float, producer_bytes_per_second: float) -> Change:
    """Let other threads make the next batch during the step; its upload stays in the loop."""

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[number].nbytes for number in _copies_of(timeline, line))
        made = _remove_batch_making(timeline, line, making_bytes_per_second)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS))
            if is_call_of(action, UPLOAD_KINDS, line)
            else action
            for action in made.actions
        ]
        making = nbytes / max(1, timeline.steps) / producer_bytes_per_second
        return made.changed(actions=actions, floor=min(making, steady_step_seconds(timeline)))

    return change


def prefetch_batches(line: int, *, seconds: float, producer_seconds: float) -> Change:
    """Remove `seconds` of batch making before each upload; other threads do it during the step."""

    def change(timeline: Timeline) -> Timeline:
        actions = list(timeline.actions)
        for place, action in enumerate(timeline.actions):
            if is_call_of(action, UPLOAD_KINDS, line) and action.queues:
                _shorten_before(actions, place, line, seconds)
        return timeline.changed(actions=actions, floor=min(producer_seconds, steady_step_seconds(timeline)))

    return change


def merge_uploads(line: int, *, bytes_per_second: float, host_bytes_per_second: float) -> Change:
    """Replace the uploads of a step by one; the host assembles the data first."""

    def change(timeline: Timeline) -> Timeline:
        actions, operations = [], list(timeline.operations)
        sent: list[int] = []  # copies of this step so far
        for action in timeline.actions:
            if is_call_of(action, UPLOAD_KINDS, line):
                more = bool(sent) and (bool(action.queues) or len(sent) > 1)
                sent += action.queues
                action = replace(action, seconds=0.0, queues=(), awaits=()) if more else action
            elif action.ends_step and sent:
                nbytes, first = sum(operations[number].nbytes for number in sent), operations[sent[0]]
                actions.append(HostAction(nbytes / host_bytes_per_second, line=line))
                seconds = max(first.seconds, nbytes / bytes_per_second)
                operations[sent[0]] = replace(first, seconds=seconds, nbytes=nbytes)
                sent = []
            actions.append(action)
        return timeline.changed(actions=actions, operations=operations)

    return change


def narrow_dtype(line: int, *, share: float, kind: str = "upload") -> Change:
    """Upload only a share of the bytes of a line."""

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for number in _copies_of(timeline, line, kind):
            copy = operations[number]
            operations[number] = replace(copy, seconds=copy.seconds * share, nbytes=int(copy.nbytes * share))
        actions = [
            replace(action, seconds=action.seconds * share) if is_call_of(action, (kind,), line) else action
            for action in timeline.actions
        ]
        return timeline.changed(actions=actions, operations=operations)

    return change


def gather_on_device(
    line: int, *, gather_bytes_per_second: float, making_bytes_per_second: float = 0.0, waits: bool = False
) -> Change:
    """Keep the data on the device and select rows there; only their indices are uploaded.

    With `waits`, the loop waits for the indices as it waits for the rows now. With `making_bytes_per_second`, the
    assembly of the batch in the loop is removed too.
    """

    def change(timeline: Timeline) -> Timeline:
        made = _remove_batch_making(timeline, line, making_bytes_per_second) if making_bytes_per_second else timeline
        operations, actions = list(made.operations), list(made.actions)
        for place, action in enumerate(made.actions):
            if not is_call_of(action, UPLOAD_KINDS, line):
                continue
            for number in action.queues:
                taken = operations[number].nbytes / gather_bytes_per_second
                operations[number] = replace(operations[number], seconds=taken, engine="compute", nbytes=0)
            awaits = action.awaits if waits else ()
            actions[place] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaits=awaits)
        return made.changed(actions=actions, operations=operations)

    return change


def _copies_of(timeline: Timeline, line: int, kind: str = "upload") -> Iterator[int]:
    """Yield the copies of calls of this kind; for uploads also the copies of compiled calls."""
    for action in timeline.actions:
        if is_call_of(action, UPLOAD_KINDS if kind == "upload" else (kind,), line):
            yield from action.queues
        elif kind == "upload" and is_call_of(action, ("run",), line):
            yield from (number for number in action.queues if timeline.operations[number].engine == "host to device")


def _remove_batch_making(timeline: Timeline, line: int, bytes_per_second: float) -> Timeline:
    """Remove the assembly of batches before the uploads of a line.

    Its time is not recorded. It is estimated from this speed, but it is at least the host time of the upload, which
    copies the same bytes into new memory.
    """
    actions = list(timeline.actions)
    for place, action in enumerate(timeline.actions):
        if is_call_of(action, UPLOAD_KINDS, line) and action.queues:
            nbytes = sum(timeline.operations[number].nbytes for number in action.queues)
            copying = _host_seconds(timeline, place, line)
            _shorten_before(actions, place, line, max(copying, nbytes / bytes_per_second))
    return timeline.changed(actions=actions)


def _host_seconds(timeline: Timeline, place: int, line: int) -> float:
    """Return the host time of an upload, before and after it queues the copy."""
    actions = timeline.actions
    own = actions[place].seconds
    for neighbours in (range(place - 1, -1, -1), range(place + 1, len(actions))):
        for other in neighbours:
            if not is_call_of(actions[other], UPLOAD_KINDS, line) or actions[other].queues:
                break
            own += actions[other].seconds
    return own


def _shorten_before(actions: list[HostAction], place: int, line: int, seconds: float) -> None:
    """Subtract seconds from the work before an upload, within its step."""
    while place > 0 and seconds > 0:
        place -= 1
        action = actions[place]
        if action.ends_step or not (action.kind in ("work", "launch") or is_call_of(action, UPLOAD_KINDS, line)):
            return
        if action.kind == "work":
            actions[place] = replace(action, seconds=max(0.0, action.seconds - seconds))
            seconds -= action.seconds
