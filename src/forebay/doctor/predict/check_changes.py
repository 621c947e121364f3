"""The change that checks data on the device and reads back only one number.

Here, a check is host work that uses the data of a read-back. A capture does not show which host work this is. So the
change treats all host work between a read-back and the next framework call as the check, and moves it to the device.
The cautious estimate removes less host work:

- It removes at most the time of one pass over the bytes at CHECK_BYTES_PER_SECOND.
- It keeps at least the share GAIN_UNCERTAINTY of the work.
- It removes nothing if the next framework call uploads data, because the host work may have made this data.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_call_of
from forebay.doctor.predict.simulate import GAIN_UNCERTAINTY
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline
from forebay.doctor.predict.upload_changes import UPLOAD_KINDS

__all__ = ["check_on_device", "check_seconds"]

READ_BACK_KINDS = ("download",)
# Rate of a slow check on the host. Five measured checks handled 1.3e9 to 4.5e9 bytes per second
# (docs/doctor-predictions.md).
CHECK_BYTES_PER_SECOND = 1e9


def check_on_device(
    line: int, *, bytes_per_second: float, passes: int, waits: bool, is_cautious: bool = False
) -> Change:
    """Check on the device what a line reads back, and read back one number.

    The check makes `passes` passes over the bytes, each at `bytes_per_second`. With `waits`, the loop waits for the
    number. The change removes the host work after the read-back; with `is_cautious`, it removes only the share that is
    certainly the check.
    """

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        for indices, check_share in _work_after_read_backs(timeline, line):
            kept_share = 1 - check_share if is_cautious else 0.0
            for index in indices:
                actions[index] = replace(actions[index], seconds=actions[index].seconds * kept_share)
        for index, action in enumerate(timeline.actions):
            if is_call_of(action, READ_BACK_KINDS, line):
                _replace_copies(operations, action.queued_operations, bytes_per_second / passes)
                seconds = min(action.seconds, CALL_SECONDS * passes)
                awaited = action.awaited_operations if waits else ()
                actions[index] = replace(action, seconds=seconds, awaited_operations=awaited)
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def check_seconds(timeline: Timeline, line: int) -> tuple[float, float]:
    """Return the seconds per step of checks on the host: cautious estimate and maximum."""
    work = [
        (sum(timeline.actions[index].seconds for index in indices), check_share)
        for indices, check_share in _work_after_read_backs(timeline, line)
    ]
    steps = max(1, timeline.step_count)
    cautious = sum(seconds * check_share for seconds, check_share in work) / steps
    return cautious, sum(seconds for seconds, _ in work) / steps


def _replace_copies(operations: list[DeviceOperation], copies: Collection[int], bytes_per_second: float) -> None:
    """Replace copies by checks on the device, in place."""
    for operation_index in copies:
        copy = operations[operation_index]
        seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
        operations[operation_index] = replace(copy, seconds=seconds, engine="compute", nbytes=0, is_pageable=False)


def _work_after_read_backs(timeline: Timeline, line: int) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the host work after each read-back, and the share that is certainly the check.

    The host work is a list of indices of actions. The simulation repeats the timeline, so the first actions follow the
    last read-back.
    """
    actions = timeline.actions
    read_backs = [index for index, action in enumerate(actions) if is_call_of(action, READ_BACK_KINDS, line)]
    after_last = read_backs[-1] + 1 if read_backs else 0
    work: list[int] = []
    is_after_read_back = bool(read_backs)
    # The largest size counts, because the last read-back may lack its copy.
    nbytes = max((_queued_nbytes(timeline, actions[index]) for index in read_backs), default=0)
    for index in (*range(after_last, len(actions)), *range(after_last)):
        action = actions[index]
        if is_call_of(action, READ_BACK_KINDS, line):
            is_after_read_back = True
        elif is_after_read_back and _is_host_work(action):
            work.append(index)
        elif is_after_read_back and not _is_copy_by_other_thread(timeline, action):
            yield work, 0.0 if action.kind in UPLOAD_KINDS else _check_share(timeline, work, nbytes)
            work, is_after_read_back = [], False
    yield work, _check_share(timeline, work, nbytes)


def _queued_nbytes(timeline: Timeline, action: HostAction) -> int:
    return sum(timeline.operations[operation_index].nbytes for operation_index in action.queued_operations)


def _check_share(timeline: Timeline, work: Sequence[int], nbytes: int) -> float:
    """Return the share of host work that certainly is a check of `nbytes`."""
    seconds = sum(timeline.actions[index].seconds for index in work)
    return min(1 - GAIN_UNCERTAINTY, nbytes / CHECK_BYTES_PER_SECOND / seconds) if seconds else 0.0


def _is_host_work(action: HostAction) -> bool:
    return action.kind == "work" and not action.queued_operations and not action.awaited_operations


def _is_copy_by_other_thread(timeline: Timeline, action: HostAction) -> bool:
    """Whether the action only queues copies and takes no time, because another thread copies."""
    has_only_copies = all(
        timeline.operations[operation_index].engine != "compute" for operation_index in action.queued_operations
    )
    is_upload = action.kind in UPLOAD_KINDS
    return bool(action.queued_operations) and has_only_copies and not action.seconds and not is_upload
