"""A finding: one cause of lost time with its line, evidence, cost and cures."""

from dataclasses import dataclass, field

from forebay.doctor.model.events import Line
from forebay.doctor.predict.changes import Change

__all__ = ["Cure", "Finding"]

# Share of the largest gain of a cure. If the least gain of the cure is smaller, the cure may save nothing.
PREDICTED_SHARE = 0.1
EQUAL_GAIN_SHARE = 0.2  # share of the largest gain; predictions are not exact enough to order smaller differences
# Share of the cost of a finding. A cure with a smaller gain comes after cures that may save more, or nothing.
REAL_GAIN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Cure:
    """A change to the script, as code to paste.

    A rule makes the cure without its gain. `diagnosis.savings` computes `low` and `high` from `changes`.
    """

    title: str
    code: str
    basis: str  # why the cure saves time, and what must hold for that; a sentence without its full stop
    # One change of the timeline for each possible outcome of the cure. A cure without changes has the gain 0.
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
    changes_training: bool = False  # the cure changes what the model learns, so half of its gain decides its rank
    is_bound: bool = False  # `seconds` is an upper bound of the cost, because the exact cost is not known
    why_more: str = ""  # a complete sentence: why a cure may save more than `seconds`
    is_wait: bool = False  # the host waits for the device, so the finding costs only what its best cure may save

    @property
    def gain(self) -> float:
        """The gain of the best cure in seconds per step; 0.0 without cures."""
        return self.best_cure.gain if self.cures else 0.0

    @property
    def best_cure(self) -> Cure:
        return self.cures_by_gain[0]

    @property
    def cures_by_gain(self) -> list[Cure]:
        """The cures, best first.

        Cures that certainly save a part of the cost come before cures that may save nothing. Cures with nearly equal
        gains keep the order in which the rule made them, so that the order is the same in every run.
        """
        remaining, ordered = sorted(self.cures, key=lambda cure: not self._certainly_saves(cure)), list[Cure]()
        while remaining:
            is_certain = self._certainly_saves(remaining[0])
            candidates = [cure for cure in remaining if self._certainly_saves(cure) == is_certain]
            least_gain = (1 - EQUAL_GAIN_SHARE) * max(cure.gain for cure in candidates)
            ordered.append(next(cure for cure in candidates if cure.gain >= least_gain))
            remaining.remove(ordered[-1])
        return ordered

    def _certainly_saves(self, cure: Cure) -> bool:
        """Whether a cure certainly saves time, and REAL_GAIN_SHARE of the cost on average."""
        is_predicted = cure.low >= PREDICTED_SHARE * cure.high
        return is_predicted and cure.gain > 0 and cure.gain >= REAL_GAIN_SHARE * self.seconds
