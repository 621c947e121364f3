"""Growth of the step time during a run, and the line whose time grows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from math import sqrt
from statistics import fmean, linear_regression, median

from forebay.doctor.analyse.call_tree import line_of, main_path, share_by_frame
from forebay.doctor.model.step_history import StepBlock, StepHistory

__all__ = ["Drift", "GrowingLine", "find_drift", "find_growing_line"]

PARTS = 4  # equal parts into which a run is divided
MIN_RISES = 2  # of the three changes from one part to the next must be rises; other programs may disturb one part
MIN_BLOCKS = 6  # blocks of steps; fewer do not show whether the growth is steady
MIN_GROWTH = 0.2  # of the step time in the first part: least growth of the step time during the run
MIN_PART_OF_GROWTH = 0.1  # of the whole growth: least growth from one part to the next that counts as a rise
MIN_ORDERED = 0.8  # share of all pairs of blocks in which the later block must have the longer steps
MAX_JUMP_ERROR = 0.5  # of the squared error of a straight line; with less, one jump describes the step times better
MIN_SHARE_OF_GROWTH = 0.6  # of the growth must belong to one line; else the machine or all lines became slower
MIN_SHARE_OF_FIRST = 0.5  # of a step at the start of the history; `find_drift` extrapolates to no shorter first step
SIGNIFICANCE = 2.5  # standard deviations; least growth of the share of a line
MIN_SHARE_GROWTH = 0.05  # share of all samples; least growth of the share of a line


@dataclass(frozen=True, slots=True)
class Drift:
    """Steps that become longer during a run."""

    first_seconds: float  # step time at the start of the loop, extrapolated from the step history
    last_seconds: float  # step time at the end of the history
    mean_seconds: float  # mean step time of the history
    steps: int  # number of steps in the history

    @property
    def seconds_per_step(self) -> float:
        """The cost of the growth: the mean step time minus the first step time."""
        return max(0.0, self.mean_seconds - self.first_seconds)


@dataclass(frozen=True, slots=True)
class GrowingLine:
    """The line whose time grows. Times are seconds per step."""

    line: int  # index into `Capture.lines`
    function: str  # innermost function of a library whose time grows; empty if unknown
    first_seconds: float
    last_seconds: float


def find_drift(blocks: Sequence[StepBlock], steps_before: int = 0) -> Drift | None:
    """Return the growth of the step time; None if it does not grow steadily.

    `blocks` are those of the step history. `steps_before` is the number of steps of the loop before the history.
    """
    usual = [block.usual for block in _whole_blocks(blocks)]
    if len(usual) < MIN_BLOCKS:
        return None
    parts = [median(part) for part in _split(usual)]
    growth = parts[-1] - parts[0]
    pairs = list(combinations(usual, 2))
    ordered = sum(later > earlier for earlier, later in pairs)
    rises = sum(later - earlier >= MIN_PART_OF_GROWTH * growth for earlier, later in pairwise(parts))
    is_steady = rises >= MIN_RISES and ordered >= MIN_ORDERED * len(pairs) and not _is_one_jump(usual)
    if growth <= 0 or growth < MIN_GROWTH * parts[0] or not is_steady:
        return None
    half = (len(usual) + 1) // 2
    slope, first = _robust_line(usual[:half])
    _, last = _robust_line(usual[: -half - 1 : -1])
    first = min(max(first, min(usual) - slope / 2), parts[0])
    earliest = max(first - max(0.0, slope) * steps_before / blocks[0].steps, MIN_SHARE_OF_FIRST * first)
    return Drift(earliest, max(last, parts[-1]), fmean(usual), sum(block.steps for block in blocks))


def _robust_line(values: Sequence[float]) -> tuple[float, float]:
    """Return slope and initial height of a straight line through the values.

    The slope is the median slope of all pairs of values, so single disturbed values do not change the line (Theil-Sen
    estimator). Each value is the median of a block of steps, so the start is half a block before the first value.
    """
    slope = median((later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(values), 2))
    return slope, median(value - slope * (at + 0.5) for at, value in enumerate(values))


def _is_one_jump(values: Sequence[float]) -> bool:
    """Whether one jump between two constants describes the values much better than a straight line.

    The constants are the mean of the values before the jump and the mean of those after it. The squared errors decide.
    """
    split_error = min(_squared_error(values[:at]) + _squared_error(values[at:]) for at in range(1, len(values)))
    slope, intercept = linear_regression(range(len(values)), values)
    line_error = sum((value - intercept - slope * at) ** 2 for at, value in enumerate(values))
    return split_error < MAX_JUMP_ERROR * line_error


def _squared_error(values: Sequence[float]) -> float:
    """Return the sum of the squared differences from the mean."""
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def find_growing_line(history: StepHistory, drift: Drift) -> GrowingLine | None:
    """Return the innermost line that causes most of the growth; None if there is none.

    The line's share of the samples must grow. If the machine becomes slower, all lines keep their shares.
    """
    frames, blocks = history.frames, _whole_blocks(history.blocks)
    third = max(1, len(blocks) // 3)
    first, last = _Profile.of(history, blocks[:third]), _Profile.of(history, blocks[-third:])
    growths = [last.growth_since(first, index) for index in range(len(frames))]
    least = MIN_SHARE_OF_GROWTH * (last.seconds - first.seconds)
    # A frame comes after its caller, so the first frame that grows is the outermost frame with this property. Its
    # callers, such as the call of the training function, have all samples, so their share does not grow.
    outermost = next((index for index, growth in enumerate(growths) if growth >= least > 0), -1)
    frame = main_path(frames, growths, least, outermost)[-1] if outermost >= 0 else -1
    line = line_of(frames, frame)
    if line < 0:
        return None
    # The profiles cover the first and the last third of the run. At the very start the line takes less time than in the
    # first third, and at the very end more than in the last third. All other lines take about the same time.
    first_others, last_others = (part.seconds * (1 - part.shares[frame]) for part in (first, last))
    first_seconds = min(first.shares[frame] * first.seconds, max(0.0, drift.first_seconds - first_others))
    last_seconds = max(last.shares[frame] * last.seconds, drift.last_seconds - last_others)
    return GrowingLine(line, frames[frame].function, first_seconds, last_seconds)


@dataclass(frozen=True, slots=True)
class _Profile:
    """The step time and the samples of a part of the run."""

    seconds: float  # usual step time
    count: int  # number of samples
    shares: list[float]  # share of the samples that each frame and its callees have

    @classmethod
    def of(cls, history: StepHistory, blocks: Sequence[StepBlock]) -> "_Profile":
        samples = list(chain.from_iterable(block.samples for block in blocks))
        seconds = fmean(block.usual for block in blocks) if blocks else 0.0
        return cls(seconds, sum(count for _, count in samples), share_by_frame(history.frames, samples))

    def growth_since(self, first: "_Profile", frame: int) -> float:
        """Return the seconds per step by which a frame has grown since `first`.

        Return 0.0 if chance explains the growth of its share.
        """
        before, after = first.shares[frame], self.shares[frame]
        if not first.count or not self.count:
            return 0.0
        mean = (before * first.count + after * self.count) / (first.count + self.count)
        deviation = sqrt(max(0.0, mean * (1 - mean)) * (1 / first.count + 1 / self.count))
        is_larger = after - before >= max(MIN_SHARE_GROWTH, SIGNIFICANCE * deviation)
        return after * self.seconds - before * first.seconds if is_larger else 0.0


def _whole_blocks(blocks: Sequence[StepBlock]) -> Sequence[StepBlock]:
    """Return the blocks without the last one if it has fewer steps than the first."""
    return blocks[:-1] if len(blocks) > 1 and blocks[-1].steps < blocks[0].steps else blocks


def _split(values: Sequence[float]) -> list[Sequence[float]]:
    """Split values into PARTS consecutive parts of about equal length."""
    edges = [len(values) * part // PARTS for part in range(PARTS + 1)]
    return [values[start:end] for start, end in pairwise(edges)]
