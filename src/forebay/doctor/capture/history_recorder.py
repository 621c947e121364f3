"""Builds a step history from the times at which steps end, and from stack samples of the loop.

A measured step is one step, or several steps that were measured together. The recorder groups measured steps into
chunks. The median of a chunk tells which of its steps are long. Several chunks form a block. When there are MAX_BLOCKS
blocks, the recorder merges each pair of them, and later blocks contain twice as many chunks. So a run of any length
needs the same memory.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import median

from forebay.doctor.model.step_history import LongStep, StackFrame, StepBlock, StepHistory

__all__ = ["HistoryRecorder"]

CHUNK_STEPS = 32  # measured steps per chunk
MIN_STEPS = 5  # measured steps; a chunk with fewer has no reliable median
LONG_SHARE = 0.5  # a long step takes longer than a usual step by at least this share
MAX_BLOCKS = 64
MAX_LONG_STEPS = 1_000  # the history keeps the latest long steps
MAX_LONG_FRAMES = 8  # the history stores the innermost frames in which a long step was longest, at most so many
MAX_PENDING = 5_000  # samples of the current step that the recorder keeps: the latest


@dataclass(slots=True)
class _MeasuredStep:
    """One step, or several steps that were measured together."""

    seconds: float
    steps: int
    samples: Counter[int] = field(default_factory=Counter)  # innermost frame -> number of random samples
    nanoseconds: Counter[int] = field(default_factory=Counter)  # innermost frame -> time

    def is_long(self, usual: float) -> bool:
        """Whether the steps took much longer than `usual` seconds per step.

        The random variation of a sum of n steps grows with the square root of n, so the limit does too.
        """
        return self.seconds - self.steps * usual > LONG_SHARE * usual * sqrt(self.steps)


@dataclass(slots=True)
class _State:
    """The history of all complete chunks."""

    blocks: list[StepBlock] = field(default_factory=list)
    chunks_per_block: int = 1
    open_chunks: list[StepBlock] = field(default_factory=list)  # chunks of the block that is not complete
    position: int = 0  # number of steps in the complete chunks, and of discarded steps
    long_steps: deque[LongStep] = field(default_factory=lambda: deque(maxlen=MAX_LONG_STEPS))
    long_count: int = 0
    long_seconds: float = 0.0
    long_excess: float = 0.0
    long_nanoseconds: Counter[int] = field(default_factory=Counter)
    usual: float = 0.0  # seconds of the median step of the last chunk

    def copy(self) -> "_State":
        return _State(
            [*self.blocks], self.chunks_per_block, [*self.open_chunks], self.position, self.long_steps.copy(),
            self.long_count, self.long_seconds, self.long_excess, self.long_nanoseconds.copy(), self.usual,
        )  # fmt: skip


class HistoryRecorder:
    """Builds a step history from step ends and samples, each in order of time."""

    def __init__(self) -> None:
        self._state = _State()
        self._chunk: list[_MeasuredStep] = []
        # Samples since the last step end: time (ns), index of the innermost frame, `is_random` of `add_sample`.
        self._samples: deque[tuple[int, int, bool]] = deque(maxlen=MAX_PENDING)
        self._last_end = 0  # nanoseconds; 0: unknown
        self._resolution = 1

    @property
    def usual_seconds(self) -> float:
        """The median step time of the last chunk in seconds; 0.0 without a chunk."""
        return self._state.usual

    @property
    def last_end(self) -> int:
        """Time (ns) at which the current step began; 0 if unknown."""
        return self._last_end

    def add_sample(self, time: int, frame: int, *, is_random: bool = True) -> None:
        """Add a sample of the stack with the innermost frame `frame` at a time (ns).

        `is_random` is False if the time depends on the end of a step. Then `StepBlock.samples` does not count the
        sample, because it would bias the counts.
        """
        self._samples.append((time, frame, is_random))

    def add_end(self, time: int, steps: int) -> None:
        """End the current measurement at `time` (ns), and begin the next one.

        The measurement covers `steps` steps. With zero steps, discard the current measurement. Ignore a time before the
        last end: a hook that was just removed may report it late.
        """
        if time < self._last_end:
            return
        if steps and self._last_end:
            measured = _MeasuredStep((time - self._last_end) / 1e9, steps)
            self._assign_samples(measured, time)
            self._chunk.append(measured)
            self._resolution = max(self._resolution, steps)
            if len(self._chunk) >= CHUNK_STEPS:
                self._close_chunk()
        else:
            self._discard_step(time)
        self._last_end = time

    def history(self, frames: Iterable[StackFrame]) -> StepHistory | None:
        """Return the history so far, with `frames` as its stack frames.

        Return None if there are fewer than MIN_STEPS measured steps.
        """
        state = self._state.copy()
        if len(self._chunk) >= MIN_STEPS or (self._chunk and state.usual):
            _add_chunk(state, self._chunk)
        blocks = [*state.blocks, _merge(state.open_chunks)] if state.open_chunks else state.blocks
        if not blocks:
            return None
        return StepHistory(
            tuple(frames),
            tuple(blocks),
            tuple(state.long_steps),
            state.long_count,
            state.long_seconds,
            state.long_excess,
            tuple(state.long_nanoseconds.items()),
            self._resolution,
        )

    def _assign_samples(self, measured: _MeasuredStep, end: int) -> None:
        """Move the samples of a measured step from the queue into it.

        Each sample counts for the time since the previous sample, or since the last step end.
        """
        previous = self._last_end
        while self._samples and self._samples[0][0] <= end:
            time, frame, is_random = self._samples.popleft()
            if frame >= 0 and time > self._last_end:
                measured.nanoseconds[frame] += time - previous
                measured.samples[frame] += is_random
                previous = time

    def _close_chunk(self) -> None:
        _add_chunk(self._state, self._chunk)
        self._chunk = []

    def _discard_step(self, end: int) -> None:
        """Drop the samples of a step, but count the step.

        So the positions of later long steps stay right.
        """
        if self._last_end:
            if len(self._chunk) >= MIN_STEPS:
                self._close_chunk()
            self._state.position += 1
        while self._samples and self._samples[0][0] <= end:
            self._samples.popleft()


def _add_chunk(state: _State, chunk: list[_MeasuredStep]) -> None:
    per_step = [measured.seconds / measured.steps for measured in chunk]
    usual = median(per_step) if len(chunk) >= MIN_STEPS else state.usual
    samples: Counter[int] = Counter()
    for measured in chunk:
        if measured.is_long(usual):
            _add_long_step(state, measured, usual)
        else:
            samples.update(measured.samples)
        state.position += measured.steps
    state.usual = usual
    steps, seconds = sum(measured.steps for measured in chunk), sum(measured.seconds for measured in chunk)
    samples = +samples  # without frames that have no sample
    _add_block(state, StepBlock(steps, seconds, usual, tuple(samples.items())))


def _add_long_step(state: _State, measured: _MeasuredStep, usual: float) -> None:
    """Add a long step.

    If several steps were measured together, assume that only one of them was long.
    """
    excess = measured.seconds - measured.steps * usual
    frames = tuple(frame for frame, _ in measured.nanoseconds.most_common(MAX_LONG_FRAMES))
    state.long_steps.append(LongStep(state.position, usual + excess, frames))
    state.long_count += 1
    state.long_seconds += usual + excess
    state.long_excess += excess
    state.long_nanoseconds.update(measured.nanoseconds)


def _add_block(state: _State, chunk: StepBlock) -> None:
    state.open_chunks.append(chunk)
    if len(state.open_chunks) < state.chunks_per_block:
        return
    state.blocks.append(_merge(state.open_chunks))
    state.open_chunks = []
    if len(state.blocks) >= MAX_BLOCKS:
        state.blocks = [_merge(pair) for index, pair in enumerate(pairwise(state.blocks)) if index % 2 == 0]
        state.chunks_per_block *= 2


def _merge(blocks: Iterable[StepBlock]) -> StepBlock:
    """Merge blocks into one block.

    The recorder does not keep the times of single steps. So the usual step of the result is the weighted mean of the
    medians of the blocks.
    """
    parts = list(blocks)
    steps = sum(block.steps for block in parts)
    samples: Counter[int] = Counter()
    for block in parts:
        samples.update(dict(block.samples))
    usual = sum(block.usual * block.steps for block in parts) / steps
    return StepBlock(steps, sum(block.seconds for block in parts), usual, tuple(samples.items()))
