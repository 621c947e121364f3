"""The table of transfers and waits in a step, by source line."""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind, Line

__all__ = ["Transfer", "transfers_of"]

_KINDS = (EventKind.UPLOAD, EventKind.DOWNLOAD, EventKind.MOVE, EventKind.INPUT, EventKind.SYNC)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One call on one line, in a mean step."""

    kind: str
    api: str
    line: Line | None
    per_step: float
    nbytes: float
    seconds: float
    share: float  # of a step; above 1 if several threads run it at once


def transfers_of(view: CaptureView) -> list[Transfer]:
    """List transfers and waits, longest first."""
    whole = view.steps.seconds if view.steps else 0.0
    return [
        Transfer(
            site.kind.value,
            site.api,
            site.line,
            site.per_step,
            site.nbytes,
            site.seconds,
            site.seconds / whole if whole else 0.0,
        )
        for site in view.sites_of(*_KINDS)
    ]
