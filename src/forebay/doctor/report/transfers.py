"""Everything that crosses or waits in a step, by the line that does it: rows of a table. Pure."""

from dataclasses import dataclass

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.events import Kind, Line

__all__ = ["Crossing", "crossings_of"]

_KINDS = (Kind.UPLOAD, Kind.DOWNLOAD, Kind.MOVE, Kind.INPUT, Kind.SYNC)


@dataclass(frozen=True, slots=True)
class Crossing:
    """One line and one call, in a mean step."""

    kind: str
    api: str
    line: Line | None
    per_step: float
    nbytes: float
    seconds: float
    share: float  # of a step; of several threads together it may be more than the whole


def crossings_of(case: Case) -> list[Crossing]:
    """The longest first."""
    whole = case.steps.seconds if case.steps else 0.0
    return [
        Crossing(
            site.kind.value,
            site.api,
            site.line,
            site.per_step,
            site.nbytes,
            site.seconds,
            site.seconds / whole if whole else 0.0,
        )
        for site in case.of(*_KINDS)
    ]
