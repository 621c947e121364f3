"""Batches so small that fixed costs (Python and launches) take most of a step."""

from collections.abc import Iterator
from itertools import pairwise

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of, unexplained_seconds
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_count, format_percent
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import sites_for

__all__ = ["examine"]

LARGEST_NBYTES = 16 << 10  # data per step
FEW_ROWS = 8
LEAST_SHARE = 0.6  # of a step without copies and waits
LONGEST_SECONDS = 5e-3  # the shortest step; a longer one is limited by computation
LARGER = 8  # times the present batch size


def examine(view: CaptureView) -> Iterator[Finding]:
    """Without a GPU the rest of a step may be computation, so only very few rows count."""
    if not view.step_seconds or any(sites_for(view, rule, EventKind.OPS) for rule in ("threads", "tiny_ops", "eager")):
        return
    nbytes, rows = _nbytes(view), _rows(view)
    few = 0 < rows <= FEW_ROWS
    fixed = min(view.step_seconds, unexplained_seconds(view) + (_compiled(view) if few else 0.0))
    small = 0 < nbytes <= LARGEST_NBYTES and (view.has_gpu or few)
    if small and fixed >= LEAST_SHARE * view.step_seconds and _shortest(view) <= LONGEST_SECONDS:
        yield _finding(view, nbytes, rows, fixed)


def _finding(view: CaptureView, nbytes: float, rows: int, fixed: float) -> Finding:
    number = rows * LARGER or f"{LARGER} * batch_size"
    batch = f"{format_count(rows, 'row')}, " if rows else ""
    around = format_percent(fixed / view.step_seconds)
    basis = f"fixed costs are shared by {LARGER} times as many rows; part of this time may be computation"
    code = f"batch_size = {number}   # also adapt the learning rate"
    cure = Cure(f"use a batch {LARGER} times as large", code, 0.0, fixed * (1 - 1 / LARGER), basis)
    return Finding(
        rule="small_batch",
        title=f"A step has only {batch}{format_nbytes(nbytes)} of data; "
        f"{around} of its time is neither copies nor waits",
        line=next((site.line for site in view.sites_of(EventKind.INPUT, EventKind.UPLOAD) if site.in_loop), None),
        seconds=fixed,
        cures=(cure,),
        evidence=("That time is Python and launches, which more rows would share.",),
    )


def _shortest(view: CaptureView) -> float:
    """Return the shortest step, which other processes delayed least."""
    edges = view.steps.edges if view.steps else ()
    profiled = ((after - before) / 1e9 for before, after in pairwise(edges))
    return min((*profiled, *view.unprofiled_seconds), default=0.0)


def _compiled(view: CaptureView) -> float:
    """Return the seconds per step in compiled calls; for few rows most of it is call overhead."""
    return cost_of(view, [event for site in view.sites_of(EventKind.RUN) for event in site.events])


def _nbytes(view: CaptureView) -> float:
    """Return the data of a step: the larger of input and uploads, since input may be uploaded later."""
    return max(sum(site.nbytes for site in view.sites_of(kind)) for kind in (EventKind.INPUT, EventKind.UPLOAD))


def _rows(view: CaptureView) -> int:
    return max(
        (int(rows) for site in view.sites_of(EventKind.INPUT) for rows in site.values("batch_rows") if rows), default=0
    )
