"""A finding: one named cause with its line, its evidence, its cost and its cures."""

from dataclasses import dataclass, field

from forebay.doctor.model.events import Line
from forebay.doctor.predict.changes import Change

__all__ = ["Cure", "Finding"]


@dataclass(frozen=True, slots=True)
class Cure:
    """What to do about it, as code to paste, and what that would win."""

    title: str
    code: str
    low: float  # seconds of a step won, at least
    high: float  # and at most
    how: str = "the calls it removes, as measured"
    changes: tuple[Change, ...] = field(default=(), compare=False, repr=False)  # of a timeline, as it may turn out

    @property
    def win(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause."""

    rule: str  # the name of its file
    title: str  # one sentence, with the numbers that matter
    line: Line | None
    seconds: float  # of a step that it costs
    cures: tuple[Cure, ...]
    evidence: tuple[str, ...] = field(default=())

    @property
    def win(self) -> float:
        """What the best cure wins."""
        return self.best.win if self.cures else 0.0

    @property
    def best(self) -> Cure:
        return self.best_first[0]

    @property
    def best_first(self) -> list[Cure]:
        """Every cure, the one that wins most first."""
        return sorted(self.cures, key=lambda cure: -cure.win)
