"""What a run measured: every sample is kept, medians and ratios are worked out from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeAlias

from forebay.measure.bench.meters import Pace
from forebay.measure.bench.model import Case, Target

__all__ = ["CaseResult", "Results", "Row", "Status"]

Status: TypeAlias = Literal["measured", "not installed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a case: its samples, or why it has none."""

    label: str
    contender: str
    status: Status = "measured"
    reason: str = ""
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def median(self, column: str) -> float | None:
        values = self.samples.get(column)
        return median(values) if values else None

    def spread(self, column: str) -> float | None:
        """Half the range of the samples, as a share of their median."""
        values = self.samples.get(column)
        if not values or not median(values):
            return None
        return (max(values) - min(values)) / 2 / abs(median(values))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, its rows, and the share of the time that others took from this machine between the rounds."""

    case: Case
    rows: tuple[Row, ...]
    taken_share: float | None = None

    def row(self, label: str) -> Row | None:
        return next((row for row in self.rows if row.label == label), None)

    def ratio(self, label: str, over: str, column: str) -> float | None:
        """The median of the ratios taken round by round: what disturbed one round disturbed both."""
        row, base = self.row(label), self.row(over)
        if row is None or base is None:
            return None
        pairs = zip(row.samples.get(column, ()), base.samples.get(column, ()), strict=False)
        ratios = [value / other for value, other in pairs if other]
        return median(ratios) if ratios else None

    def measured(self, target: Target) -> float | None:
        """What stands beside a target."""
        if target.over is not None:
            return self.ratio(target.of, target.over, target.column)
        row = self.row(target.of)
        return row.median(target.column) if row else None

    def met(self, target: Target) -> bool | None:
        """Whether a target is met; None where it was not measured."""
        value = self.measured(target)
        if value is None:
            return None
        enough = target.at_least is None or value >= target.at_least
        return enough and (target.at_most is None or value <= target.at_most)


@dataclass(frozen=True, slots=True)
class Results:
    """One run of the bench."""

    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    pace: Pace
    quick: bool
    consumer: str  # what the busy consumer did
    cases: tuple[CaseResult, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for result in self.cases for row in result.rows)
