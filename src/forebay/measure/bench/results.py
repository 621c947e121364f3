"""Results of a run: every sample, and the medians and ratios computed from the samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeAlias

from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, PerformanceTarget

__all__ = ["BenchResults", "CaseResult", "ResultRow", "Status"]

Status: TypeAlias = Literal["measured", "not installed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The result of one entry: its samples, or the reason why it has none."""

    label: str
    contender: str
    status: Status = "measured"
    reason: str = ""
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # column -> one value per measured round

    def median(self, column: str) -> float | None:
        values = self.samples.get(column)
        return median(values) if values else None

    def spread(self, column: str) -> float | None:
        """Return half the range of the samples, as a share of their median."""
        values = self.samples.get(column)
        if not values or not median(values):
            return None
        return (max(values) - min(values)) / 2 / abs(median(values))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case and its result rows."""

    case: Case
    rows: tuple[ResultRow, ...]
    cpu_steal_share: float | None = None  # mean; measured before each round, while no entry ran

    def row(self, label: str) -> ResultRow | None:
        return next((row for row in self.rows if row.label == label), None)

    def ratio(self, label: str, over: str, column: str) -> float | None:
        """Return the median ratio of two entries, over all rounds that measured both.

        If other processes slow a round down, they slow both entries, so the ratio changes little.
        """
        row, base = self.row(label), self.row(over)
        if row is None or base is None:
            return None
        pairs = zip(row.samples.get(column, ()), base.samples.get(column, ()), strict=False)
        ratios = [value / other for value, other in pairs if other]
        return median(ratios) if ratios else None

    def measured(self, target: PerformanceTarget) -> float | None:
        """Return the median or ratio that the target limits; None if not measured."""
        if target.over is not None:
            return self.ratio(target.of, target.over, target.column)
        row = self.row(target.of)
        return row.median(target.column) if row else None

    def is_met(self, target: PerformanceTarget) -> bool | None:
        """Return whether a target is met; None if it was not measured."""
        value = self.measured(target)
        if value is None:
            return None
        is_enough = target.at_least is None or value >= target.at_least
        return is_enough and (target.at_most is None or value <= target.at_most)


@dataclass(frozen=True, slots=True)
class BenchResults:
    """One run of the bench."""

    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: RunSettings
    quick: bool  # whether the run used `--quick`
    consumer: str  # describes the step that the busy consumer runs after every batch
    cases: tuple[CaseResult, ...]
    date: str | None = None  # of the start, in UTC; None in files of Forebay 0.1
    commit: str | None = None  # of Forebay; None if it was installed from a package

    @property
    def rows(self) -> tuple[ResultRow, ...]:
        return tuple(row for result in self.cases for row in result.rows)
