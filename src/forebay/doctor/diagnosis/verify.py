"""Verification: run the script again with the main cure emulated or applied, and time its steps.

If the doctor cannot emulate a cure whose code fits the script, it applies this code to a copy of the script. It also
runs the script without each debug setting whose cost the capture does not show.

An emulation replaces only calls on the target line. The values that the script computes in such a run are stale or
wrong. Only the step time is meaningful.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.capture.profiled_run import RunRequest
from forebay.doctor.diagnosis.applied_code import DOES_NOT_FIT
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.diagnosis.emulations import choose_emulation, find_workers_cure
from forebay.doctor.diagnosis.measured_settings import Rerun, measure_settings
from forebay.doctor.diagnosis.subprocess_run import removed_variable, rerun_in_subprocess, time_in_subprocess
from forebay.doctor.emulate.rerun import StepEnd
from forebay.doctor.model.emulation import Emulation, EmulationKind, Verification
from forebay.doctor.model.formatting import predicted_step_seconds
from forebay.doctor.model.redaction import without_arguments
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wide_dtype import CONVERT_ONCE
from forebay.errors import CaptureError

__all__ = ["verify"]

# The second run has a time limit, because an emulated cure may keep a loop from ending. The limit is the larger of
# these two values.
MAX_FACTOR = 3.0  # times the duration of the first run
MIN_LIMIT_SECONDS = 120.0


def verify(
    diagnosis: Diagnosis, run: RunRequest, *, begin: Callable[[EmulationKind], None] = lambda kind: None
) -> Verification:
    """Run the script with the main cure emulated, and return the step times.

    Without a measured step time, `Verification.trouble` says why. This function calls `begin` just before each run of
    the script. It does not run the script for a cure that it cannot emulate.
    """
    view, finding = diagnosis.view, diagnosis.main
    end = _step_end(view)
    if view.capture.ended == "terminated":
        return Verification(trouble="the script was terminated, so the doctor does not run it again")
    if end is None:
        return Verification(trouble="there is no finding with a cure")
    rerun = partial(_rerun, view, run, end, begin)
    measured = measure_settings(diagnosis, rerun)
    if finding is None:
        return Verification(trouble="" if measured else "there is no finding with a cure", settings=measured)
    if any(each.title == finding.title for each in measured):  # the main finding is one of the measured settings
        return Verification(settings=measured)
    emulation = choose_emulation(view, finding)
    if isinstance(emulation, Emulation) and emulation.kind is EmulationKind.APPLIED:
        return replace(_time_applied(view, run, finding, emulation, begin), settings=measured)
    return replace(_verify_cure(view, finding, emulation, rerun), settings=measured)


def _time_applied(
    view: RuleView, run: RunRequest, finding: Finding, emulation: Emulation, begin: Callable[[EmulationKind], None]
) -> Verification:
    """Run the script with the code of the main finding's best cure."""
    script = Path(run.script)
    if run.module or not script.is_file() or script.resolve() != Path(emulation.file).resolve():
        return Verification(
            trouble="this cure cannot be applied, because its code belongs to another file or the script is gone"
        )
    begin(emulation.kind)
    try:
        timed = time_in_subprocess(run, emulation, seconds=_time_limit(view))
    except CaptureError as error:
        return Verification(emulation.kind, trouble=str(error).rstrip("."))
    if timed.step_seconds is None:
        does_fit = not timed.ended.startswith(DOES_NOT_FIT)
        cause = "with the cure, the script made too few steps: " if does_fit else ""
        return Verification(emulation.kind, trouble=cause + timed.ended)
    cure = finding.best_cure
    predicted = predicted_step_seconds(cure.low, cure.high, view.step_seconds)
    return Verification(emulation.kind, predicted=predicted, measured=timed.step_seconds)


def _verify_cure(view: RuleView, finding: Finding, emulation: Emulation | str, rerun: Rerun) -> Verification:
    if isinstance(emulation, str):
        return Verification(trouble=f"this cure cannot be emulated, because {emulation}")
    capture = rerun(emulation)
    if isinstance(capture, str):
        return Verification(emulation.kind, trouble=capture)
    cure = _emulated_cure(finding, emulation.kind)
    return Verification(
        emulation.kind,
        predicted=predicted_step_seconds(cure.low, cure.high, view.step_seconds),
        measured=capture.step_seconds,
    )


def _rerun(
    view: CaptureView, run: RunRequest, end: StepEnd, begin: Callable[[EmulationKind], None], emulation: Emulation
) -> CaptureView | str:
    """Run the script with an emulation; return its capture, or why it is not valid."""
    begin(emulation.kind)
    try:
        capture = rerun_in_subprocess(_with_short_warm_up(run, view), emulation, end, seconds=_time_limit(view))
    except CaptureError as error:
        return str(error).rstrip(".")
    rerun = CaptureView(without_arguments(capture))
    return _find_trouble(rerun, end, emulation) or rerun


def _emulated_cure(finding: Finding, kind: EmulationKind) -> Cure:
    """Return the cure whose prediction the second run tests.

    This is the best cure, except for two kinds. NARROW emulates only the conversion, without prefetching. WORKERS
    emulates worker processes even if the best cure is one that the doctor cannot emulate.
    """
    if kind is EmulationKind.WORKERS:
        return find_workers_cure(finding) or finding.best_cure
    if kind is EmulationKind.NARROW:
        return next(cure for cure in finding.cures if cure.title == CONVERT_ONCE)
    return finding.best_cure


def _with_short_warm_up(run: RunRequest, view: CaptureView) -> RunRequest:
    """Return the request with a warm-up of at most a quarter of the profiled steps.

    The warm-up has at least one step.
    """
    return replace(run, warm_up=min(run.warm_up, max(1, len(view.steps or ()) // 4)))


def _time_limit(view: CaptureView) -> float:
    """Return the time limit of the second run in seconds."""
    return max(MAX_FACTOR * view.capture.seconds, MIN_LIMIT_SECONDS)


def _find_trouble(rerun: CaptureView, end: StepEnd, emulation: Emulation) -> str:
    """Return why the second run has no valid step time, or an empty string.

    An emulation must have replaced a call, unless it only unset an environment variable.
    """
    emulated, ended = rerun.capture.facts["emulated"], rerun.capture.ended
    if _step_end(rerun) != end:  # the second run has other steps, or none
        cause = "had too few steps" if ended == "done" else f"ended too early: {ended}"
        return f"the run with the emulated cure {cause}"
    if not emulated["replaced"] and emulation.kind is not EmulationKind.NOTHING and not removed_variable(emulation):
        return "; ".join(["the emulation replaced no call on this line", *emulated["notes"]])
    return ""


def _step_end(view: CaptureView) -> StepEnd | None:
    """Return the call that ends a step and its line; None without steps."""
    if view.steps is None:
        return None
    kind, api, number = view.steps.anchor
    line = view.line(number)
    return kind, api, line.file if line else "", line.number if line else 0
