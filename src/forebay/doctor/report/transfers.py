"""The transfers and waits of a mean step, by source line."""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind, Line

__all__ = ["Transfer", "transfers_of"]

_KINDS = (EventKind.UPLOAD, EventKind.DOWNLOAD, EventKind.MOVE, EventKind.INPUT, EventKind.SYNC)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A call on one line that transfers data or waits. All numbers are per step."""

    kind: str  # a value of EventKind
    api: str
    line: Line | None
    per_step: float  # number of calls
    nbytes: float
    seconds: float
    share: float  # of the mean profiled step; above 1 if several threads make the call at the same time


def transfers_of(view: CaptureView) -> list[Transfer]:
    """Return the transfers and waits, longest first."""
    step_seconds = sum(view.host_parts.values())  # the mean: a median step lacks calls of few steps
    return [
        Transfer(
            site.kind.value,
            site.api,
            site.line,
            site.per_step,
            site.nbytes,
            site.seconds,
            site.seconds / step_seconds if step_seconds else 0.0,
        )
        for site in view.sites_of(*_KINDS)
    ]
