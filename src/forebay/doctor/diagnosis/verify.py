"""The main cause's cure tried: the script is run again with it emulated, and its steps are timed.

Only the line that is accused is changed. What the script computes then is stale or wrong, so only its speed counts.
"""

from collections.abc import Callable
from dataclasses import replace

from forebay.doctor.analyse.case import Case
from forebay.doctor.capture.run_watched import Run
from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.diagnosis.emulations import emulation_of
from forebay.doctor.diagnosis.subprocess_run import rerun_apart
from forebay.doctor.emulate.rerun import StepEnd
from forebay.doctor.model.emulation import Emulation, Way
from forebay.doctor.model.formatting import predicted
from forebay.doctor.model.verification import Verification
from forebay.doctor.rules.finding import Cure, Finding
from forebay.errors import CaptureError

__all__ = ["verify"]

LONGEST, LEAST_SECONDS = 3.0, 120.0  # times the first run, and at least so long: a cure may keep a loop from ending


def verify(verdict: Verdict, run: Run, *, begin: Callable[[Way], None] = lambda way: None) -> Verification:
    """What came of it, whatever that is; `begin` is told when the script is about to be run again."""
    case, finding = verdict.case, verdict.main
    end = _end_of(case)
    if case.capture.ended == "terminated":
        return Verification(trouble="whoever has ended the script wants no other run of it")
    if finding is None or end is None:
        return Verification(trouble="there is no finding whose cure could be tried")
    emulation = emulation_of(case, finding)
    if isinstance(emulation, str):
        return Verification(trouble=f"this cure is not emulated, because {emulation}")
    begin(emulation.way)
    try:
        seen = rerun_apart(_shortened(run, case), emulation, end, seconds=_most_seconds(case))
    except CaptureError as error:
        return Verification(emulation.way, trouble=str(error).rstrip("."))
    cure = _cure_of(finding, emulation.way)
    return replace(_timed(emulation, Case(seen), end), predicted=predicted(cure.low, cure.high, case.step_seconds))


def _cure_of(finding: Finding, way: Way) -> Cure:
    """Which of the cures was emulated: the best, but where that is two in one."""
    return finding.cures[0] if way is Way.NARROW else finding.best


def _shortened(run: Run, case: Case) -> Run:
    """A script of few steps has none to spare for a long warm-up."""
    return replace(run, warm_up=min(run.warm_up, max(1, len(case.steps or ()) // 4)))


def _most_seconds(case: Case) -> float:
    return max(LONGEST * case.capture.seconds, LEAST_SECONDS)


def _timed(emulation: Emulation, case: Case, end: StepEnd) -> Verification:
    told, ended = case.capture.facts["emulated"], case.capture.ended
    trouble = ""
    if _end_of(case) != end:
        how = "had too few steps" if ended == "done" else f"ended too early: {ended}"
        trouble = f"the run with the cure emulated {how}"
    elif not told["replaced"]:
        trouble = "; ".join(["nothing that the line calls could be done in another way", *told["notes"]])
    if trouble:
        return Verification(emulation.way, trouble=trouble)
    return Verification(emulation.way, measured=case.step_seconds)


def _end_of(case: Case) -> StepEnd | None:
    """Where a step ends."""
    if case.steps is None:
        return None
    kind, api, number = case.steps.anchor
    line = case.line(number)
    return kind, api, line.file if line else "", line.number if line else 0
