"""Cures of uploads as changes of a timeline.

The docstring of a function says what the returned change does.
"""

from collections.abc import Iterator
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_call_of, remove_actions
from forebay.doctor.predict.timeline import HostAction, Timeline

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

COPY_STREAM = -1  # simulated stream that has only prefetched copies
# "move": a framework copies an array to the device because an operation needs it there.
UPLOAD_KINDS = ("upload", "move")


def remove_uploads(line: int, *, share: float = 1.0) -> Change:
    """Remove `share` of the uploads of a line."""

    def change(timeline: Timeline) -> Timeline:
        uploads = [index for index, action in enumerate(timeline.actions) if is_call_of(action, UPLOAD_KINDS, line)]
        removed = set(uploads[: round(len(uploads) * share)])
        return remove_actions(timeline, removed)

    return change


def page_lock_copies(line: int, *, bytes_per_second: float) -> Change:
    """Let the uploads of a line copy from page-locked memory at `bytes_per_second`.

    The call only queues the copy and does not wait.
    """

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for operation_index in _copies_of(timeline, line):
            copy = operations[operation_index]
            seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
            operations[operation_index] = replace(copy, seconds=seconds, is_pageable=False)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS), awaited_operations=())
            if is_call_of(action, UPLOAD_KINDS, line)
            else action
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def overlap_copies(line: int) -> Change:
    """Run the copies of a line on their own stream, without waits for them.

    This simulates a loop that queues these copies one step early.
    """

    def change(timeline: Timeline) -> Timeline:
        copies = set(_copies_of(timeline, line))
        operations = [
            replace(operation, stream=COPY_STREAM, dependencies=())
            if operation_index in copies
            else replace(
                operation, dependencies=tuple(other for other in operation.dependencies if other not in copies)
            )
            for operation_index, operation in enumerate(timeline.operations)
        ]
        actions = [
            replace(
                action,
                awaited_operations=tuple(
                    operation_index for operation_index in action.awaited_operations if operation_index not in copies
                ),
            )
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def prefetch_uploads(
    line: int, *, bytes_per_second: float, producer_bytes_per_second: float, making_bytes_per_second: float = 0.0
) -> Change:
    """Let a thread make and upload the next batch during the step.

    It copies from page-locked memory at `bytes_per_second`, and makes batches at `producer_bytes_per_second`. If the
    loop now makes its batches itself, at `making_bytes_per_second`, the change also removes this time.
    """

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[operation_index].nbytes for operation_index in _copies_of(timeline, line))
        producer_seconds = nbytes / max(1, timeline.step_count) / producer_bytes_per_second
        without_making = timeline
        if making_bytes_per_second:
            without_making = _remove_batch_making(timeline, line, making_bytes_per_second)
        prefetched = overlap_copies(line)(page_lock_copies(line, bytes_per_second=bytes_per_second)(without_making))
        return prefetched.with_parts(min_step_seconds=producer_seconds)

    return change


def prefetch_conversion(line: int, *, making_bytes_per_second: float, producer_bytes_per_second: float) -> Change:
    """Let other threads make the next batch during the step, as tf.data does.

    The loop only queues the upload. The loop now makes batches at `making_bytes_per_second`, and the other threads will
    make them at `producer_bytes_per_second`. Unlike `prefetch_batches`, this change estimates the times from the bytes.
    """

    def change(timeline: Timeline) -> Timeline:
        nbytes = sum(timeline.operations[operation_index].nbytes for operation_index in _copies_of(timeline, line))
        without_making = _remove_batch_making(timeline, line, making_bytes_per_second)
        actions = [
            replace(action, seconds=min(action.seconds, CALL_SECONDS))
            if is_call_of(action, UPLOAD_KINDS, line)
            else action
            for action in without_making.actions
        ]
        producer_seconds = nbytes / max(1, timeline.step_count) / producer_bytes_per_second
        return without_making.with_parts(actions=actions, min_step_seconds=producer_seconds)

    return change


def prefetch_batches(line: int, *, seconds: float, producer_seconds: float) -> Change:
    """Let producers make the next batch during the step, instead of the loop.

    The change removes `seconds` of host work before each upload. The producers, which are other threads or processes,
    need `producer_seconds` per step.
    """

    def change(timeline: Timeline) -> Timeline:
        actions = list(timeline.actions)
        for index, action in enumerate(timeline.actions):
            if is_call_of(action, UPLOAD_KINDS, line) and action.queued_operations:
                _shorten_before(actions, index, line, seconds)
        return timeline.with_parts(actions=actions, min_step_seconds=producer_seconds)

    return change


def merge_uploads(line: int, *, bytes_per_second: float, host_bytes_per_second: float) -> Change:
    """Replace the uploads of a step by one upload at `bytes_per_second`.

    The host also assembles the data at `host_bytes_per_second`. In the simulation, it does this at the end of the step.
    """

    def change(timeline: Timeline) -> Timeline:
        actions, operations = [], list(timeline.operations)
        copies: list[int] = []  # indices of the copies of this step so far
        for action in timeline.actions:
            if is_call_of(action, UPLOAD_KINDS, line):
                # Keep the first upload of the step. An upload can have several actions, of which one queues the copy.
                # An action that queues nothing is a part of the previous upload.
                is_repeated = bool(copies) and (bool(action.queued_operations) or len(copies) > 1)
                copies += action.queued_operations
                if is_repeated:
                    action = replace(action, seconds=0.0, queued_operations=(), awaited_operations=())
            elif action.ends_step and copies:
                nbytes, first = (
                    sum(operations[operation_index].nbytes for operation_index in copies),
                    operations[copies[0]],
                )
                actions.append(HostAction(nbytes / host_bytes_per_second, line=line))
                seconds = max(first.seconds, nbytes / bytes_per_second)
                operations[copies[0]] = replace(first, seconds=seconds, nbytes=nbytes)
                copies = []
            actions.append(action)
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def narrow_dtype(line: int, *, share: float, kind: str = "upload") -> Change:
    """Keep only `share` of the bytes that calls on a line copy to the device.

    `kind` is the kind of these calls, such as "upload" or "move".
    """

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for operation_index in _copies_of(timeline, line, kind):
            copy = operations[operation_index]
            operations[operation_index] = replace(copy, seconds=copy.seconds * share, nbytes=int(copy.nbytes * share))
        actions = [
            replace(action, seconds=action.seconds * share) if is_call_of(action, (kind,), line) else action
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def gather_on_device(
    line: int, *, gather_bytes_per_second: float, making_bytes_per_second: float = 0.0, waits: bool = False
) -> Change:
    """Keep the data on the device, so that the loop uploads only row indices.

    The device gathers the rows at `gather_bytes_per_second`. With `waits`, the loop waits for this as it now waits for
    the upload. If the loop now makes its batches itself, at `making_bytes_per_second`, the change also removes this
    time.
    """

    def change(timeline: Timeline) -> Timeline:
        without_making = timeline
        if making_bytes_per_second:
            without_making = _remove_batch_making(timeline, line, making_bytes_per_second)
        operations, actions = list(without_making.operations), list(without_making.actions)
        for index, action in enumerate(without_making.actions):
            if not is_call_of(action, UPLOAD_KINDS, line):
                continue
            for operation_index in action.queued_operations:
                seconds = operations[operation_index].nbytes / gather_bytes_per_second
                operations[operation_index] = replace(
                    operations[operation_index], seconds=seconds, engine="compute", nbytes=0
                )
            awaited = action.awaited_operations if waits else ()
            actions[index] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaited_operations=awaited)
        return without_making.with_parts(actions=actions, operations=operations)

    return change


def _copies_of(timeline: Timeline, line: int, kind: str = "upload") -> Iterator[int]:
    """Yield the indices of the copies that calls of this kind queue on a line.

    For uploads, this includes copies to the device that compiled functions on this line queue.
    """
    for action in timeline.actions:
        if is_call_of(action, UPLOAD_KINDS if kind == "upload" else (kind,), line):
            yield from action.queued_operations
        elif kind == "upload" and is_call_of(action, ("run",), line):
            yield from (
                operation_index
                for operation_index in action.queued_operations
                if timeline.operations[operation_index].engine == "host to device"
            )


def _remove_batch_making(timeline: Timeline, line: int, bytes_per_second: float) -> Timeline:
    """Remove the host work that makes the batches before the uploads of a line.

    The capture does not contain the duration of this work. The estimate is the time for the bytes at
    `bytes_per_second`, but at least the host time of the upload, because the upload also copies these bytes into new
    memory.
    """
    actions = list(timeline.actions)
    for index, action in enumerate(timeline.actions):
        if is_call_of(action, UPLOAD_KINDS, line) and action.queued_operations:
            nbytes = sum(timeline.operations[operation_index].nbytes for operation_index in action.queued_operations)
            upload_seconds = _upload_host_seconds(timeline, index, line)
            _shorten_before(actions, index, line, max(upload_seconds, nbytes / bytes_per_second))
    return timeline.with_parts(actions=actions)


def _upload_host_seconds(timeline: Timeline, index: int, line: int) -> float:
    """Return the host time of an upload, both before and after it queues the copy.

    `index` is the index of the action that queues the copy.
    """
    actions = timeline.actions
    seconds = actions[index].seconds
    for neighbours in (range(index - 1, -1, -1), range(index + 1, len(actions))):
        for other in neighbours:
            if not is_call_of(actions[other], UPLOAD_KINDS, line) or actions[other].queued_operations:
                break
            seconds += actions[other].seconds
    return seconds


def _shorten_before(actions: list[HostAction], index: int, line: int, seconds: float) -> None:
    """Subtract `seconds` from the host work before the upload at `index`, in place.

    The search for host work goes back to the start of the step, or to the last call that is neither an upload of this
    line nor a launch of any line.
    """
    while index > 0 and seconds > 0:
        index -= 1
        action = actions[index]
        if action.ends_step or not (action.kind in ("work", "launch") or is_call_of(action, UPLOAD_KINDS, line)):
            return
        if action.kind == "work":
            actions[index] = replace(action, seconds=max(0.0, action.seconds - seconds))
            seconds -= action.seconds
