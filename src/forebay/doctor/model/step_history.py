"""The step history: the times of all unprofiled steps, and samples of the loop's stack.

After the profiled steps, one hook still reports the end of each step, and a thread samples the stack of the loop a few
times per second. To limit its memory, the history stores only sums for blocks of many steps. A step that takes much
longer than the steps around it is a long step. The history stores the latest long steps one by one, and the samples of
all long steps separately.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["LongStep", "StackFrame", "StepBlock", "StepHistory"]


class StackFrame(NamedTuple):
    """A frame of the sampled stacks. Frames form call trees.

    In `StepHistory.frames`, each frame comes after its caller.
    """

    caller: int  # index of the calling frame; -1 for the outermost frame of user code
    line: int  # index into `Capture.lines`; -1 for a function of a library
    function: str = ""  # name of a function of a library; empty for a line of user code


class LongStep(NamedTuple):
    """A step that took much longer than the other steps at that time."""

    position: int  # number of steps before this step
    seconds: float
    frames: tuple[int, ...] = ()  # innermost frames that were sampled in the step, at most a few; longest first


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Consecutive steps, with samples of those that are not long steps."""

    steps: int
    seconds: float  # sum of all steps, including long steps
    usual: float  # seconds of the median step; in a merged block, the weighted mean of the medians
    samples: tuple[tuple[int, int], ...] = ()  # index of an innermost frame, and its number of samples


@dataclass(frozen=True, slots=True)
class StepHistory:
    """The unprofiled steps of a run."""

    frames: tuple[StackFrame, ...] = field(default=(), repr=False)
    blocks: tuple[StepBlock, ...] = ()  # in order of time
    long_steps: tuple[LongStep, ...] = ()  # the latest long steps, in order of time
    long_count: int = 0  # number of all long steps of the run
    long_seconds: float = 0.0  # sum of all long steps
    long_excess: float = 0.0  # `long_seconds` minus the seconds of as many usual steps
    long_samples: tuple[tuple[int, int], ...] = ()  # index of an innermost frame, and its nanoseconds in all long steps
    resolution: int = 1  # largest number of steps timed together; `LongStep.position` is exact to this many steps

    @property
    def steps(self) -> int:
        return sum(block.steps for block in self.blocks)

    @property
    def seconds(self) -> float:
        return sum(block.seconds for block in self.blocks)

    def to_json(self) -> dict[str, Any]:
        return {
            "frames": [list(frame) for frame in self.frames],
            "blocks": [[block.steps, block.seconds, block.usual, _to_lists(block.samples)] for block in self.blocks],
            "long_steps": [[step.position, step.seconds, list(step.frames)] for step in self.long_steps],
            "long_count": self.long_count,
            "long_seconds": self.long_seconds,
            "long_excess": self.long_excess,
            "long_samples": _to_lists(self.long_samples),
            "resolution": self.resolution,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "StepHistory":
        return cls(
            tuple(StackFrame(*frame) for frame in document["frames"]),
            tuple(
                StepBlock(steps, seconds, usual, _to_tuples(samples))
                for steps, seconds, usual, samples in document["blocks"]
            ),
            tuple(LongStep(position, seconds, tuple(frames)) for position, seconds, frames in document["long_steps"]),
            document["long_count"],
            document["long_seconds"],
            document["long_excess"],
            _to_tuples(document["long_samples"]),
            document["resolution"],
        )


def _to_lists(samples: tuple[tuple[int, int], ...]) -> list[list[int]]:
    return [list(sample) for sample in samples]


def _to_tuples(samples: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((frame, amount) for frame, amount in samples)
