"""A finding: one cause with its line, evidence, cost and cures."""

from dataclasses import dataclass, field

from forebay.doctor.model.events import Line
from forebay.doctor.predict.changes import Change

__all__ = ["Cure", "Finding"]

PREDICTED_SHARE = 0.1  # of the largest gain of a cure; with a smaller least gain, the largest one is only a bound
EQUAL_GAIN_SHARE = 0.2  # of a gain; predictions are not exact enough to order smaller differences
REAL_GAIN_SHARE = 0.25  # of the cost of a finding; a cure with a smaller gain is not better than a larger bound


@dataclass(frozen=True, slots=True)
class Cure:
    """A change to the script, as code to paste.

    A rule says what the cure changes. It does not compute the gain: `diagnosis.savings` does so from `changes`.
    """

    title: str
    code: str
    basis: str  # why the cure saves time, and what must hold for that; a sentence without its full stop
    # One change of the timeline per possible outcome of the cure. Without changes, the cure saves no time.
    changes: tuple[Change, ...] = field(default=(), compare=False, repr=False)
    low: float = 0.0  # seconds saved per step, at least
    high: float = 0.0  # seconds saved per step, at most

    @property
    def gain(self) -> float:
        """The mean of `low` and `high`, in seconds per step."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of lost time, or a warning."""

    rule: str  # rule id
    title: str  # one sentence with the main numbers, without its full stop
    line: Line | None  # None if the cause has no known line
    seconds: float  # cost per step; 0.0 for a warning
    cures: tuple[Cure, ...]
    evidence: tuple[str, ...] = field(default=())  # complete sentences
    changes_training: bool = False  # its cure also changes what the script learns, so its gain counts half in the order
    is_bound: bool = False  # the cost is at most `seconds`; how much of it was lost is not known
    why_more: str = ""  # a complete sentence: why a cure may save more than the cost
    is_wait: bool = False  # the host waits for computation, so the finding costs only what its best cure may save

    @property
    def gain(self) -> float:
        """The gain of the best cure in seconds per step; 0.0 without cures."""
        return self.best_cure.gain if self.cures else 0.0

    @property
    def best_cure(self) -> Cure:
        return self.cures_by_gain[0]

    @property
    def cures_by_gain(self) -> list[Cure]:
        """The cures, best first: those that certainly save a part of the cost, then those that may save nothing.

        Cures of nearly equal gains stay in the order of the rule, so that the order is the same in every run.
        """
        waiting, ordered = sorted(self.cures, key=lambda cure: not self._certainly_saves(cure)), list[Cure]()
        while waiting:
            is_certain = self._certainly_saves(waiting[0])
            equals = [cure for cure in waiting if self._certainly_saves(cure) == is_certain]
            least = (1 - EQUAL_GAIN_SHARE) * max(cure.gain for cure in equals)
            ordered.append(next(cure for cure in equals if cure.gain >= least))
            waiting.remove(ordered[-1])
        return ordered

    def _certainly_saves(self, cure: Cure) -> bool:
        """Whether the least gain of a cure was predicted, and its gain is a real part of what the finding costs."""
        is_predicted = cure.low >= PREDICTED_SHARE * cure.high
        return is_predicted and cure.gain > 0 and cure.gain >= REAL_GAIN_SHARE * self.seconds
