"""Helpers for the outcomes of cures: for `cure_changes` and the modules beside it."""

from collections.abc import Callable

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.predict import call_changes
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.machines import MachineSpeeds, machine_speeds

__all__ = ["WORKERS_BYTES_PER_SECOND", "Changes", "choose_outcomes", "limit_by_cores", "line_of"]

# Rate at which a DataLoader gets batches from its worker processes and page-locks them; 1.8e9 to 2.4e9 were measured.
WORKERS_BYTES_PER_SECOND = 2.1e9
Changes = tuple[Change, ...]  # one change of the timeline per outcome of a cure


def choose_outcomes(
    view: CaptureView, with_device: Callable[[MachineSpeeds], Changes], without_device: Callable[[], Changes]
) -> Changes:
    """Return the result of `with_device` if the capture has device records, else of `without_device`."""
    return with_device(machine_speeds(view)) if view.device is not None else without_device()


def limit_by_cores(view: CaptureView) -> Change:
    """Let a step take at least its present CPU time divided by the cores.

    If the CPU time was not measured, a step takes at least as long as now.
    """
    busy, cores = view.capture.facts.get("busy_cores"), view.capture.machine.get("cores") or 1
    share = min(1.0, busy / cores) if isinstance(busy, int | float) else 1.0
    return call_changes.take_at_least(view.step_seconds * share)


def line_of(site: CallSite) -> int:
    """Return the line index of a call site; -1 if it has no events."""
    return site.events[0].line if site.events else -1
