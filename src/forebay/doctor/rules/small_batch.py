"""The rule for batches so small that Python and launches take most of a step."""

from collections.abc import Iterator
from itertools import pairwise

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of, unexplained_seconds
from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_count, format_percent
from forebay.doctor.predict.cure_changes import enlarge_batch
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.input_edits import change_batch_size
from forebay.doctor.rules.precedence import RuleView

__all__ = ["examine"]

MAX_NBYTES = 16 << 10  # bytes of data per step; a step with more is not small
FEW_ROWS = 8  # rows per batch; more are not few
MIN_REPORTED_SHARE = 0.6  # share of a step; the rule does not report smaller fixed costs
MAX_STEP_SECONDS = 5e-3  # if even the shortest step takes longer, computation takes most of it
GROWTH_FACTOR = 8  # factor on the batch size that the cure proposes


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield a finding if a step has little data and large fixed costs.

    Fixed costs are the time outside of recorded events; with few rows, also the time in compiled calls. Without a GPU,
    the time outside of events may be computation, so the rule then requires few rows.
    """
    # If `settings`, `tiny_ops` or `eager` reports the operations of the loop, that rule explains the same time.
    if not view.step_seconds or any(view.sites_for(rule, EventKind.OPS) for rule in ("settings", "tiny_ops", "eager")):
        return
    nbytes, rows = _nbytes_per_step(view), _batch_rows(view)
    has_few_rows = 0 < rows <= FEW_ROWS
    fixed = min(view.step_seconds, unexplained_seconds(view) + (_compiled_seconds(view) if has_few_rows else 0.0))
    is_small = 0 < nbytes <= MAX_NBYTES and (view.has_gpu or has_few_rows)
    if is_small and fixed >= MIN_REPORTED_SHARE * view.step_seconds and _shortest_step(view) <= MAX_STEP_SECONDS:
        yield _finding(view, nbytes, rows, fixed)


def _finding(view: CaptureView, nbytes: float, rows: int, fixed: float) -> Finding:
    batch_size = rows * GROWTH_FACTOR or f"{GROWTH_FACTOR} * batch_size"
    row_count = f"{format_count(rows, 'row')}, " if rows else ""
    share = format_percent(fixed / view.step_seconds)
    basis = f"{GROWTH_FACTOR} times as many rows share the fixed costs; part of this time may be computation"
    code = f"batch_size = {batch_size}   # also adapt the learning rate"
    code = _fitted_code(view, rows) or code
    cure = Cure(f"use a batch {GROWTH_FACTOR} times as large", code, basis, enlarge_batch(view, GROWTH_FACTOR))
    return Finding(
        rule="small_batch",
        changes_training=True,
        title=f"A step has only {row_count}{format_nbytes(nbytes)} of data; "
        f"{share} of its time is neither copies nor waits",
        line=next((site.line for site in view.sites_of(EventKind.INPUT, EventKind.UPLOAD) if site.in_loop), None),
        seconds=fixed,
        cures=(cure,),
        evidence=("That time is mostly Python and launches, which take about as long for a larger batch.",),
    )


def _fitted_code(view: CaptureView, rows: int) -> str:
    """Return an edit, as text, that changes the batch size; empty without one."""

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        return change_batch_size(code, rows, GROWTH_FACTOR * rows)

    lines = [site.line for site in view.sites_of(EventKind.INPUT, EventKind.STEP) if site.in_loop]
    return next(filter(None, (fit_line(view, line, make_edits) for line in lines)), "")


def _shortest_step(view: CaptureView) -> float:
    """Return the seconds of the shortest step, which other processes delayed least."""
    edges = view.steps.edges if view.steps else ()
    profiled = ((after - before) / 1e9 for before, after in pairwise(edges))
    return min((*profiled, *view.unprofiled_seconds), default=0.0)


def _compiled_seconds(view: CaptureView) -> float:
    """Return the seconds per step in compiled calls, mostly call overhead with few rows."""
    return cost_of(view, [event for site in view.sites_of(EventKind.RUN) for event in site.events])


def _nbytes_per_step(view: CaptureView) -> float:
    """Return the bytes of the input or of the uploads per step, whichever is larger.

    The sum would count data twice that the step receives as input and then uploads.
    """
    return max(sum(site.nbytes for site in view.sites_of(kind)) for kind in (EventKind.INPUT, EventKind.UPLOAD))


def _batch_rows(view: CaptureView) -> int:
    """Return the rows of the largest batch; 0 if unknown."""
    return max(
        (int(rows) for site in view.sites_of(EventKind.INPUT) for rows in site.values("batch_rows") if rows), default=0
    )
