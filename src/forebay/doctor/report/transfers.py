"""The transfers and waits of a mean step, by source line."""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_on_any_thread
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
    share: float  # of a step; with device records, above 1 if several threads make the call at the same time


def transfers_of(view: CaptureView) -> list[Transfer]:
    """Return the transfers and waits, longest first."""
    found = [_transfer_of(view, site) for site in view.sites_of(*_KINDS)]
    return sorted(found, key=lambda transfer: -transfer.seconds)


def _transfer_of(view: CaptureView, site: CallSite) -> Transfer:
    """Return the transfer of a call site.

    With device records, its time is that in the mean profiled step, not that in an unprofiled step.
    """
    seconds, step_seconds = site.seconds, sum(view.host_parts.values())
    if view.device is None:
        seconds, step_seconds = cost_on_any_thread(view, site.events), view.step_seconds
    share = seconds / step_seconds if step_seconds else 0.0
    return Transfer(site.kind.value, site.api, site.line, site.per_step, site.nbytes, seconds, share)
