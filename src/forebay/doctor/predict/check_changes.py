"""The change that checks data on the device and reads back only one number.

Here, a pull is a read-back. The record does not show what the host computes on the data. The change treats the host
work between a pull and the next framework call as the check, and removes both. The cautious estimate removes less. It
counts only as much work as a few passes over the bytes take. It counts none if the next call uploads data, because the
host may have made that data.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from forebay.doctor.predict.changes import CALL_SECONDS, Change, is_call_of
from forebay.doctor.predict.simulate import UNCERTAIN_GAIN
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline
from forebay.doctor.predict.upload_changes import UPLOAD_KINDS

__all__ = ["check_on_device", "check_seconds"]

PULL_KINDS = ("download",)
CHECKED_BYTES_PER_SECOND = 1e9  # slowest speed of a check; all of five measured checks were faster


def check_on_device(line: int, *, bytes_per_second: float, passes: int, waits: bool, doubts: bool = False) -> Change:
    """Check on the device what a line pulls, in `passes` passes, and read back one number.

    With `waits`, the loop waits for the number. The host work after the pull is removed; with `doubts`, only a share.
    """

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        for run, share in _work_after_pulls(timeline, line):
            kept = 1 - share if doubts else 0.0
            for place in run:
                actions[place] = replace(actions[place], seconds=actions[place].seconds * kept)
        for place, action in enumerate(timeline.actions):
            if is_call_of(action, PULL_KINDS, line):
                _check_copies(operations, action.queues, bytes_per_second / passes)
                seconds = min(action.seconds, CALL_SECONDS * passes)
                actions[place] = replace(action, seconds=seconds, awaits=action.awaits if waits else ())
        return timeline.changed(actions=actions, operations=operations)

    return change


def check_seconds(timeline: Timeline, line: int) -> tuple[float, float]:
    """Return the seconds per step of host work on pulled data: cautious estimate and maximum."""
    runs = [
        (sum(timeline.actions[place].seconds for place in run), share)
        for run, share in _work_after_pulls(timeline, line)
    ]
    steps = max(1, timeline.steps)
    return sum(seconds * share for seconds, share in runs) / steps, sum(seconds for seconds, _ in runs) / steps


def _check_copies(operations: list[DeviceOperation], copies: Collection[int], bytes_per_second: float) -> None:
    for number in copies:
        copy = operations[number]
        seconds = min(copy.seconds, copy.nbytes / bytes_per_second)
        operations[number] = replace(copy, seconds=seconds, engine="compute", nbytes=0, pageable=False)


def _work_after_pulls(timeline: Timeline, line: int) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the host work after each pull, and the share that is surely the check.

    The simulation repeats the timeline, so the first actions follow the last pull.
    """
    actions = timeline.actions
    pulls = [place for place, action in enumerate(actions) if is_call_of(action, PULL_KINDS, line)]
    after_last = pulls[-1] + 1 if pulls else 0
    run: list[int] = []
    behind = bool(pulls)
    nbytes = max(
        (_pulled_nbytes(timeline, actions[place]) for place in pulls), default=0
    )  # the last pull of a record may lack its copy
    for place in (*range(after_last, len(actions)), *range(after_last)):
        action = actions[place]
        if is_call_of(action, PULL_KINDS, line):
            behind = True
        elif behind and _is_host_work(action):
            run.append(place)
        elif behind and not _is_other_thread(timeline, action):
            yield run, 0.0 if action.kind in UPLOAD_KINDS else _check_share(timeline, run, nbytes)
            run, behind = [], False
    yield run, _check_share(timeline, run, nbytes)


def _pulled_nbytes(timeline: Timeline, action: HostAction) -> int:
    return sum(timeline.operations[number].nbytes for number in action.queues)


def _check_share(timeline: Timeline, run: Sequence[int], nbytes: int) -> float:
    """Return the share of host work that counts as a check of `nbytes`."""
    seconds = sum(timeline.actions[place].seconds for place in run)
    return min(1 - UNCERTAIN_GAIN, nbytes / CHECKED_BYTES_PER_SECOND / seconds) if seconds else 0.0


def _is_host_work(action: HostAction) -> bool:
    return action.kind == "work" and not action.queues and not action.awaits


def _is_other_thread(timeline: Timeline, action: HostAction) -> bool:
    """Whether the action is a copy by another thread."""
    copies = all(timeline.operations[number].engine != "compute" for number in action.queues)
    return bool(action.queues) and copies and not action.seconds and action.kind not in UPLOAD_KINDS
