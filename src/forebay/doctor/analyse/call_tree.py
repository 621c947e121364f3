"""Sums over the sampled call stacks of a step history.

The time of a frame includes the time of all frames that it called.
"""

from collections.abc import Iterable, Sequence

from forebay.doctor.model.step_history import StackFrame

__all__ = ["callees_of", "line_of", "main_path", "outermost_frames", "share_by_frame"]


def share_by_frame(frames: Sequence[StackFrame], amounts: Iterable[tuple[int, float]]) -> list[float]:
    """Return the share of the total time that each frame and its callees take.

    `amounts` are pairs: the index of the innermost frame of a stack, and the time or number of samples of this stack.
    """
    totals = [0.0] * len(frames)
    for index, amount in amounts:
        if 0 <= index < len(frames):
            totals[index] += amount
    everything = sum(totals)
    for index in range(len(frames) - 1, -1, -1):  # backwards, because a frame comes after its caller
        if frames[index].caller >= 0:
            totals[frames[index].caller] += totals[index]
    return [total / everything for total in totals] if everything else totals


def outermost_frames(frames: Sequence[StackFrame], chosen: Sequence[bool]) -> list[int]:
    """Return the chosen frames that no other chosen frame called, directly or indirectly."""
    is_inside: list[bool] = []
    for caller, *_ in frames:
        is_inside.append(caller >= 0 and (chosen[caller] or is_inside[caller]))
    return [index for index in range(len(frames)) if chosen[index] and not is_inside[index]]


def main_path(frames: Sequence[StackFrame], amounts: Sequence[float], least: float, start: int) -> list[int]:
    """Return the path of frames from `start` along the callees with the largest amounts.

    `amounts` has one value per frame. The path ends before a frame with an amount below `least`.
    """
    callees: dict[int, list[int]] = {}
    for index, (caller, *_) in enumerate(frames):
        callees.setdefault(caller, []).append(index)
    path = [start]
    while path[-1] in callees:
        largest = max(callees[path[-1]], key=lambda index: amounts[index])
        if amounts[largest] < least:
            break
        path.append(largest)
    return path


def callees_of(frames: Sequence[StackFrame], start: int) -> frozenset[int]:
    """Return the frame `start` and all frames that it called, directly or indirectly."""
    inside = {start}
    for index in range(start + 1, len(frames)):
        if frames[index].caller in inside:
            inside.add(index)
    return frozenset(inside)


def line_of(frames: Sequence[StackFrame], index: int) -> int:
    """Return the innermost line of user code in the stack of frame `index`.

    The line is an index into `Capture.lines`; -1 if there is none.
    """
    while 0 <= index < len(frames):
        if frames[index].line >= 0:
            return frames[index].line
        index = frames[index].caller
    return -1
