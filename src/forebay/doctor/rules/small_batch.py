"""So little data in a step that its fixed costs, Python and launches, are most of it: more rows would ride for free."""

from collections.abc import Iterator
from itertools import pairwise

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.costs import cost_of, unexplained
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import counted, percent
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged

__all__ = ["examine"]

LARGEST_NBYTES = 16 << 10  # of a step's data
FEW_ROWS = 8
LEAST_SHARE = 0.6  # of a step that is neither copies nor waits
LONGEST_SECONDS = 5e-3  # of the shortest step: one that cannot be shorter computes
LARGER = 8  # times the batch


def examine(case: Case) -> Iterator[Finding]:
    """Without a GPU the rest of a step may be computing: then only very few rows are a sign."""
    if not case.step_seconds or any(charged(case, rule, Kind.OPS) for rule in ("threads", "tiny_ops", "eager")):
        return
    nbytes, rows = _nbytes(case), _rows(case)
    few = 0 < rows <= FEW_ROWS
    fixed = min(case.step_seconds, unexplained(case) + (_compiled(case) if few else 0.0))
    small = 0 < nbytes <= LARGEST_NBYTES and (case.has_gpu or few)
    if small and fixed >= LEAST_SHARE * case.step_seconds and _shortest(case) <= LONGEST_SECONDS:
        yield _finding(case, nbytes, rows, fixed)


def _finding(case: Case, nbytes: float, rows: int, fixed: float) -> Finding:
    number = rows * LARGER or f"{LARGER} * batch_size"
    told = f"{counted(rows, 'row')}, " if rows else ""
    around = percent(fixed / case.step_seconds)
    how = f"fixed costs shared by {LARGER} times the rows, for the rows of a step as it is; part may be computing"
    code = f"batch_size = {number}   # and the learning rate with it"
    cure = Cure(f"a batch {LARGER} times as large", code, 0.0, fixed * (1 - 1 / LARGER), how)
    return Finding(
        rule="small_batch",
        title=f"A step has only {told}{format_nbytes(nbytes)} of data; {around} of it is neither copies nor waits",
        line=next((site.line for site in case.of(Kind.INPUT, Kind.UPLOAD) if site.in_loop), None),
        seconds=fixed,
        cures=(cure,),
        evidence=("that time is Python and launches, which more rows would share",),
    )


def _shortest(case: Case) -> float:
    """Seconds of a step that nothing else on the machine has made longer."""
    edges = case.steps.edges if case.steps else ()
    watched = ((after - before) / 1e9 for before, after in pairwise(edges))
    return min((*watched, *case.untraced), default=0.0)


def _compiled(case: Case) -> float:
    """Seconds of a step in compiled calls: of a few rows most of that is the calling too."""
    return cost_of(case, [event for site in case.of(Kind.RUN) for event in site.events])


def _nbytes(case: Case) -> float:
    """Data that a step begins with, by whichever way is counted larger: input may be uploaded afterwards."""
    ways = [sum(site.nbytes for site in case.of(kind)) for kind in (Kind.INPUT, Kind.UPLOAD)]
    return max(ways)


def _rows(case: Case) -> int:
    return max((int(rows) for site in case.of(Kind.INPUT) for rows in site.values("batch_rows") if rows), default=0)
