"""Pauses: rare long steps of a run, and the lines that only these steps execute."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median

from forebay.doctor.analyse.call_tree import callees_of, line_of, main_path, outermost_frames, share_by_frame
from forebay.doctor.model.step_history import LongStep, StepHistory

__all__ = ["Pause", "PauseLine", "find_pauses", "find_period", "usual_seconds"]

MIN_OF_LINE = 2  # long steps that must have samples of a line; one may be a coincidence
MIN_WITHOUT_LINE = 6  # long steps of a pause without a known line; fewer may be equally far apart by chance
MAX_LONG_SHARE = 1 / 3  # of the steps; more long steps are not rare
MIN_EXCLUSIVE = 0.8  # of a frame's time in long steps must be extra time, compared with the same number of usual steps
MAX_USUAL_SHARE = 0.05  # of the time of usual steps; even a frame that only long steps execute may have stray samples
MIN_SHARE = 0.02  # of the time of all long steps; a frame with less has too few samples
MIN_SHARE_OF_FIRST = 0.2  # of the time of the first line of a pause; further lines with less are left out
MIN_SINGLE_SHARE = 0.3  # of the intervals must be one period; an interval is longer if a long step in it has no samples
MIN_REGULAR_SHARE = 0.9  # of the intervals must be one or several periods
MAX_CHANCE = 0.05  # largest accepted probability that random intervals are multiples of one of them
DEEP_SHARE = 0.6  # of the time of a line; `inner_line` is the innermost line that takes this share


@dataclass(frozen=True, slots=True)
class PauseLine:
    """A line that only long steps execute.

    Lines are indices into `Capture.lines`, and frames are indices into `StepHistory.frames`.
    """

    line: int  # the outermost line that only long steps execute, usually in the loop; -1 if unknown
    inner_line: int  # the innermost line that takes most of the time of `line`; may be `line` itself
    share: float  # of the time of all long steps
    # Pairs, callers first: a frame that `line` called, directly or not, and its share of the time of `line`.
    shares: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Long steps with the same cause."""

    count: int
    period: int  # number of steps from one of these steps to the next; 0 if irregular
    seconds: float  # median time of these steps
    usual_seconds: float  # time of a usual step: the mean of the medians of all blocks
    seconds_per_step: float  # cost of the pause, divided by the number of all steps
    first_seconds: float  # median time of the first third of these steps
    last_seconds: float  # median time of the last third of these steps
    lines: tuple[PauseLine, ...] = ()  # most time first; empty if the steps are regular and no line is known


def find_pauses(history: StepHistory) -> list[Pause]:
    """Return the pauses of a run, the most expensive first.

    Lines with samples in the same long steps belong to the same pause. If no line takes its time only in long steps,
    the long steps are a pause if they are regular; irregular ones may be disturbances by other programs.
    """
    if not history.long_count or history.long_count > MAX_LONG_SHARE * history.steps / history.resolution:
        return []
    groups = _group_lines(history)
    pauses = [_make_pause(history, steps, lines) for lines, steps in groups]
    if not pauses and len(history.long_steps) >= MIN_WITHOUT_LINE:
        pause = _make_pause(history, history.long_steps, [])
        pauses = [pause] if pause.period else []
    return sorted(pauses, key=lambda pause: -pause.seconds_per_step)


def find_period(positions: Sequence[int], resolution: int = 1) -> int:
    """Return the number of steps from one long step to the next; 0 if irregular.

    `positions` are the numbers of the long steps. Some long steps may be missing, so intervals may be multiples of the
    period. `resolution` is the number of steps that the history measures together. With a probability of at most
    MAX_CHANCE, the result is not 0 for long steps at random positions.
    """
    intervals = [after - before for before, after in pairwise(positions)]
    for period in sorted(set(intervals), reverse=True):
        single = [interval for interval in intervals if abs(interval - period) < resolution]
        multiples = sum(_is_multiple(interval, period, resolution) for interval in intervals)
        # The probability that a random interval is a multiple of the period.
        chance = min(1.0, (2 * resolution - 1) / max(period, 1))
        if (
            len(single) >= MIN_SINGLE_SHARE * len(intervals)
            and multiples >= MIN_REGULAR_SHARE * len(intervals)
            and chance ** (multiples - 1) <= MAX_CHANCE
        ):
            return round(sum(single) / len(single))
    return 0


def usual_seconds(history: StepHistory) -> float:
    """Return the usual step time in seconds; 0.0 without steps.

    This is the mean of the medians of all blocks, weighted by their numbers of steps.
    """
    return sum(block.usual * block.steps for block in history.blocks) / history.steps if history.steps else 0.0


def _is_multiple(interval: int, period: int, resolution: int) -> bool:
    return period > 0 and abs(interval - max(1, round(interval / period)) * period) < resolution


def _group_lines(history: StepHistory) -> list[tuple[list[PauseLine], list[LongStep]]]:
    """Return groups of lines, each with the long steps of its first line.

    The lines of a group and the groups are in the order of their times, the longest first. A line belongs to the first
    group with which it shares half of its long steps.
    """
    groups: list[tuple[list[PauseLine], dict[int, LongStep]]] = []
    for line, line_steps in sorted(_exclusive_lines(history), key=lambda item: -item[0].share):
        if len(line_steps) < MIN_OF_LINE:
            continue
        for lines, steps in groups:
            if 2 * len(line_steps.keys() & steps.keys()) >= len(line_steps):
                lines += [line] if line.share >= MIN_SHARE_OF_FIRST * lines[0].share else []
                break
        else:
            groups.append(([line], line_steps))
    return [(lines, list(steps.values())) for lines, steps in groups]


def _exclusive_lines(history: StepHistory) -> Iterable[tuple[PauseLine, dict[int, LongStep]]]:
    """Yield the lines that only long steps execute, each with its long steps by position."""
    frames = history.frames
    long_shares = share_by_frame(frames, history.long_samples)
    for frame in _exclusive_frames(history, long_shares):
        inside = callees_of(frames, frame)
        steps = {step.position: step for step in history.long_steps if not inside.isdisjoint(step.frames)}
        shares = share_by_frame(frames, [sample for sample in history.long_samples if sample[0] in inside])
        path = main_path(frames, shares, DEEP_SHARE, frame)
        # The frame may be a function of a library that calls user code, such as a callback of the script.
        outer = next((index for index in path if frames[index].line >= 0), frame)
        inner_shares = tuple((index, shares[index]) for index in sorted(inside) if shares[index])
        yield PauseLine(line_of(frames, outer), line_of(frames, path[-1]), long_shares[frame], inner_shares), steps


def _exclusive_frames(history: StepHistory, long_shares: Sequence[float]) -> list[int]:
    """Return the outermost frames that take much more time in long than in usual steps."""
    usual_samples = chain.from_iterable(block.samples for block in history.blocks)
    usual_shares = share_by_frame(history.frames, usual_samples)
    if not any(usual_shares):  # without samples of usual steps, even callers of the loop seem to run in long steps only
        return []
    # Share of the time of the long steps that the same number of usual steps would take.
    usual_part = max(0.0, 1 - history.long_excess / history.long_seconds) if history.long_seconds else 1.0
    is_exclusive = [
        usual_share <= MAX_USUAL_SHARE
        and long_share >= MIN_SHARE
        and long_share - usual_share * usual_part >= MIN_EXCLUSIVE * long_share
        for long_share, usual_share in zip(long_shares, usual_shares, strict=True)
    ]
    return outermost_frames(history.frames, is_exclusive)


def _make_pause(history: StepHistory, steps: Sequence[LongStep], lines: Iterable[PauseLine]) -> Pause:
    usual, seconds = usual_seconds(history), median(step.seconds for step in steps)
    period = find_period([step.position for step in steps], history.resolution)
    kept_share = len(history.long_steps) / history.long_count  # the history keeps only the last long steps
    count = round(history.steps / period) if period else round(len(steps) / kept_share)
    third = max(1, len(steps) // 3)
    first, last = (median(step.seconds for step in part) for part in (steps[:third], steps[-third:]))
    cost = min(max(0.0, seconds - usual) * count, history.seconds) / history.steps
    return Pause(count, period, seconds, usual, cost, first, last, tuple(lines))
