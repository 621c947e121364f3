"""Cures as changes of a timeline; see also `upload_changes` and `check_changes`.

A change takes a timeline and returns another timeline. If a function returns a change, its docstring says what this
change does. To combine changes, apply one after the other. Do not add their gains, because two cures may remove the
same wait. A producer is another thread or process that makes batches.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline

__all__ = [
    "CALL_SECONDS",
    "LAUNCHING_KINDS",
    "Change",
    "add_work",
    "compute_on_host",
    "remove_waits_of_line",
    "is_call_of",
    "launch_as_graph",
    "move_to_device",
    "chain",
    "prefetch_input",
    "remove_calls",
    "remove_actions",
    "remove_waits",
    "remove_work",
    "scale_launches",
    "scale_time",
    "speed_up_producers",
]

Change = Callable[[Timeline], Timeline]

CALL_SECONDS = 8e-6  # host time to queue an asynchronous copy
WAITING_KINDS = ("download", "sync")  # actions that wait for the device
LAUNCHING_KINDS = ("launch", "work", "run")  # actions that may launch kernels, and may also do other host work
# Actions that only launch kernels, so that a graph replaces them. "transform" is a call of a function that jax.grad or
# jax.vmap returned.
QUEUEING_KINDS = ("launch", "transform")
# A graph also replaces actions of LAUNCHING_KINDS that take at most this long. Longer actions contain other work of the
# script, which a graph does not replace.
MAX_LAUNCH_SECONDS = 1e-3


def chain(changes: Iterable[Change]) -> Change:
    """Combine several changes into one that applies them in order."""
    parts = tuple(changes)

    def change(timeline: Timeline) -> Timeline:
        for part in parts:
            timeline = part(timeline)
        return timeline

    return change


def remove_calls(line: int, kinds: Collection[str]) -> Change:
    """Remove calls of these kinds on a line, as if they ran before the loop."""

    def change(timeline: Timeline) -> Timeline:
        removed = {index for index, action in enumerate(timeline.actions) if is_call_of(action, kinds, line)}
        return remove_actions(timeline, removed)

    return change


def remove_work(seconds: float, kinds: Collection[str] = ("work",)) -> Change:
    """Shorten actions of these kinds by the same factor, by `seconds` per step in total."""

    def change(timeline: Timeline) -> Timeline:
        total_seconds = sum(action.seconds for action in timeline.actions if action.kind in kinds)
        removed_seconds = min(total_seconds, seconds * timeline.step_count)
        kept_share = 1 - removed_seconds / total_seconds if total_seconds else 1.0
        actions = [
            replace(action, seconds=action.seconds * kept_share) if action.kind in kinds else action
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions)

    return change


def add_work(seconds: float) -> Change:
    """Add `seconds` of host work to the end of each step."""

    def change(timeline: Timeline) -> Timeline:
        actions: list[HostAction] = []
        for action in timeline.actions:
            actions += [HostAction(seconds), action] if action.ends_step else [action]
        return timeline.with_parts(actions=actions)

    return change


def compute_on_host(seconds: float, *, calling_share: float = 0.0) -> Change:
    """Compute on the host for `seconds` per step, without kernels, copies and waits.

    `calling_share` of the time of launches, compiled calls and uploads remains, because the framework still prepares
    each call and converts its arrays. Input, and work of the script that takes more than MAX_LAUNCH_SECONDS, also
    remain.
    """

    def remaining_share(action: HostAction) -> float:
        if action.kind in (*WAITING_KINDS, "move"):
            return 0.0
        return calling_share if _is_launch(action) or action.kind in ("run", "upload") else 1.0

    def change(timeline: Timeline) -> Timeline:
        actions = [
            replace(
                action, seconds=action.seconds * remaining_share(action), queued_operations=(), awaited_operations=()
            )
            for action in timeline.actions
        ]
        return add_work(seconds)(timeline.with_parts(actions=actions))

    return change


def scale_time(share: float) -> Change:
    """Multiply all times of the host and of the device by `share`.

    For example, this removes the time of pauses, which only some steps of a run have, from the mean step.
    """

    def change(timeline: Timeline) -> Timeline:
        actions = [replace(action, seconds=action.seconds * share) for action in timeline.actions]
        operations = [
            replace(
                operation,
                seconds=operation.seconds * share,
                gap_seconds=operation.gap_seconds * share,
                latency_seconds=operation.latency_seconds * share,
            )
            for operation in timeline.operations
        ]
        producers = timeline.producer_seconds * share
        return timeline.with_parts(actions=actions, operations=operations, producer_seconds=producers)

    return change


def remove_waits_of_line(line: int, *, every: int = 0) -> Change:
    """Remove the read-backs and explicit waits of a line.

    With `every=n`, keep each n-th wait.
    """

    def change(timeline: Timeline) -> Timeline:
        actions, wait_count = [], 0
        for action in timeline.actions:
            if is_call_of(action, WAITING_KINDS, line):
                wait_count += bool(action.awaited_operations)
                is_kept = bool(every) and wait_count % every == 0
                action = action if is_kept else replace(action, seconds=0.0, awaited_operations=())
            actions.append(action)
        return timeline.with_parts(actions=actions)

    return change


def remove_waits(timeline: Timeline) -> Timeline:
    """Remove all read-backs and explicit waits of the host."""
    actions = [
        replace(action, seconds=0.0, awaited_operations=()) if action.kind in WAITING_KINDS else action
        for action in timeline.actions
    ]
    return timeline.with_parts(actions=actions)


def move_to_device(*lines: int, speedup: float = 10.0) -> Change:
    """Run the work of these lines on the device, without moving data to the CPU.

    The change removes copies and waits. The CPU work between the move to the CPU and the move back runs on the device,
    which is assumed to be `speedup` times as fast as the CPU.
    """

    def change(timeline: Timeline) -> Timeline:
        operations, actions = list(timeline.operations), list(timeline.actions)
        cpu_seconds = 0.0  # of work on the data that is on the CPU now
        for index in _moving_actions(timeline, lines):
            action = actions[index]
            cpu_seconds += action.seconds
            for operation_index in action.queued_operations:
                on_device = replace(
                    operations[operation_index],
                    seconds=cpu_seconds / speedup,
                    engine="compute",
                    nbytes=0,
                    is_pageable=False,
                )
                operations[operation_index], cpu_seconds = on_device, 0.0
            actions[index] = replace(action, seconds=min(action.seconds, CALL_SECONDS), awaited_operations=())
        _move_work_of_compiled_calls(actions, operations, lines, speedup)
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def _move_work_of_compiled_calls(
    actions: list[HostAction], operations: list[DeviceOperation], lines: Collection[int], speedup: float
) -> None:
    """Change the CPU work of compiled calls into device work, in place.

    A compiled call may copy data to the host, work on the data there and copy it back. The time between the two copies
    consists of the wait for the first copy and the CPU work. The time after the second copy contains the wait for it.
    """
    is_on_cpu, copy_seconds, cpu_seconds = False, 0.0, 0.0
    for index, action in enumerate(actions):
        if action.kind == "run" and (is_on_cpu or copy_seconds):
            cpu_seconds += max(0.0, action.seconds - copy_seconds) if is_on_cpu else 0.0
            actions[index] = replace(action, seconds=0.0 if is_on_cpu else max(0.0, action.seconds - copy_seconds))
            copy_seconds = 0.0
        for operation_index in action.queued_operations if action.kind != "move" else ():
            copy = operations[operation_index]
            if copy.engine == "compute" or copy.line not in lines:
                continue
            is_on_cpu, copy_seconds = copy.engine == "device to host", copy.seconds
            device_seconds = 0.0 if is_on_cpu else cpu_seconds / speedup
            operations[operation_index] = replace(
                copy, seconds=device_seconds, engine="compute", nbytes=0, is_pageable=False
            )
            cpu_seconds = cpu_seconds if is_on_cpu else 0.0
        if action.ends_step:
            is_on_cpu, copy_seconds = False, 0.0


def _moving_actions(timeline: Timeline, lines: Collection[int]) -> Iterator[int]:
    """Yield the indices of moves, and of the CPU work before the data moves back.

    The work counts only up to the next launch, because later work may serve another purpose.
    """
    is_on_cpu = False
    for index, action in enumerate(timeline.actions):
        is_move = action.kind == "move" and action.line in lines
        if is_move or (is_on_cpu and action.kind == "work"):
            yield index
        if action.queued_operations or action.ends_step:
            engines = {timeline.operations[operation_index].engine for operation_index in action.queued_operations}
            is_on_cpu = is_move and "device to host" in engines and not action.ends_step


def prefetch_input(*, producer_seconds: float) -> Change:
    """Let new producers make batches during the step, instead of the recorded producers.

    The new producers need `producer_seconds` for the batches of a step. The loop waits only if this is longer than the
    step itself.
    """

    def change(timeline: Timeline) -> Timeline:
        actions = [replace(action, seconds=0.0) if action.kind == "input" else action for action in timeline.actions]
        return timeline.with_parts(actions=actions, min_step_seconds=producer_seconds, producer_seconds=0.0)

    return change


def speed_up_producers(share: float) -> Change:
    """Multiply the time of the recorded producers, and the waits for them, by `share`."""

    def change(timeline: Timeline) -> Timeline:
        actions = [
            replace(action, seconds=action.seconds * share) if action.kind == "input" else action
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions, producer_seconds=timeline.producer_seconds * share)

    return change


def launch_as_graph(
    *,
    seconds_per_operation: float,
    device_share: float = 1.0,
    seconds_per_step: float = 0.0,
    longest_launch: float = MAX_LAUNCH_SECONDS,
) -> Change:
    """Queue the operations of a step as one graph.

    To queue a step, the host needs `seconds_per_operation` for each operation plus `seconds_per_step`, but at most the
    recorded time. The device needs `device_share` of its present time, because a compiler fuses small operations.
    Host work between two launches remains if it takes more than `longest_launch` seconds.
    """

    def change(timeline: Timeline) -> Timeline:
        actions, unused = [], 0.0  # `unused`: recorded launch seconds of this step that the graph has not used
        for action in timeline.actions:
            if _is_launch(action, longest_launch):
                unused += action.seconds
                seconds = min(unused, seconds_per_operation * len(action.queued_operations))
                unused -= seconds
                action = replace(action, seconds=seconds)
            if action.ends_step:
                actions.append(HostAction(min(unused, seconds_per_step), kind="launch"))
                unused = 0.0
            actions.append(action)
        operations = [
            replace(operation, seconds=operation.seconds * device_share, gap_seconds=0.0, latency_seconds=0.0)
            if operation.engine == "compute"
            else operation
            for operation in timeline.operations
        ]
        return timeline.with_parts(actions=actions, operations=operations)

    return change


def _is_launch(action: HostAction, longest: float = MAX_LAUNCH_SECONDS) -> bool:
    """Whether an action only launches kernels, so that a graph replaces it."""
    is_short = action.kind in LAUNCHING_KINDS and action.seconds <= longest
    return action.kind in QUEUEING_KINDS or is_short


def scale_launches(share: float) -> Change:
    """Multiply the time of actions that only launch kernels by `share`."""

    def change(timeline: Timeline) -> Timeline:
        actions = [
            replace(action, seconds=action.seconds * share) if _is_launch(action) else action
            for action in timeline.actions
        ]
        return timeline.with_parts(actions=actions)

    return change


def is_call_of(action: HostAction, kinds: Collection[str], line: int) -> bool:
    """Whether an action has one of these kinds and this line."""
    return action.kind in kinds and action.line == line


def remove_actions(timeline: Timeline, action_indices: Collection[int]) -> Timeline:
    """Remove the time and waits of these actions, and the time of their queued operations."""
    queued = {
        operation_index for index in action_indices for operation_index in timeline.actions[index].queued_operations
    }
    actions = [
        replace(action, seconds=0.0, queued_operations=(), awaited_operations=()) if index in action_indices else action
        for index, action in enumerate(timeline.actions)
    ]
    return timeline.with_parts(actions=actions, operations=_zero_operations(timeline, queued))


def _zero_operations(timeline: Timeline, operation_indices: Collection[int]) -> list[DeviceOperation]:
    """Return all operations, the given ones with zero time, so that indices stay valid."""
    return [
        replace(operation, seconds=0.0, nbytes=0) if operation_index in operation_indices else operation
        for operation_index, operation in enumerate(timeline.operations)
    ]
