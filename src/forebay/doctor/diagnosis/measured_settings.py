"""Measurement of debug settings whose cost only a second run shows."""

from collections.abc import Callable
from dataclasses import replace
from statistics import quantiles

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.diagnosis.diagnose import MIN_SHARE, Diagnosis
from forebay.doctor.diagnosis.emulations import choose_emulation
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.emulation import Emulation, EmulationKind, MeasuredSetting
from forebay.doctor.model.formatting import format_seconds_range
from forebay.doctor.rules import settings
from forebay.doctor.rules.finding import Finding

__all__ = ["Rerun", "is_measurable", "is_negligible", "measure_settings", "with_measured_settings"]

MAX_SETTINGS = 3  # settings to measure; each setting needs a run of the script

# Runs the script with an emulation, and returns the capture, or the reason why it has no step time.
Rerun = Callable[[Emulation], CaptureView | str]


def measure_settings(diagnosis: Diagnosis, rerun: Rerun) -> tuple[MeasuredSetting, ...]:
    """Run the script once as written, and once without each setting of unknown cost.

    Return a measurement for each of these settings, but for at most MAX_SETTINGS. `rerun` runs the script.
    """
    chosen = [(finding, choose_emulation(diagnosis.view, finding)) for finding in diagnosis.findings]
    emulations = [
        (finding, emulation)
        for finding, emulation in chosen
        if _is_uncertain(diagnosis, finding) and isinstance(emulation, Emulation)
    ][:MAX_SETTINGS]
    if not emulations:
        return ()
    baseline = rerun(Emulation(EmulationKind.NOTHING, "", 0))
    step = diagnosis.view.step_seconds
    return tuple(_measure(finding, emulation, baseline, rerun, step) for finding, emulation in emulations)


def _is_uncertain(diagnosis: Diagnosis, finding: Finding) -> bool:
    """Whether only a second run shows what the setting of a finding costs.

    This includes anomaly mode, because a capture shows only a part of its cost.
    """
    if finding.rule != settings.RULE:
        return False
    return not finding.gain or settings.find_setting(diagnosis.view, finding) == DebugSetting.ANOMALY


def _measure(
    finding: Finding, emulation: Emulation, baseline: CaptureView | str, rerun: Rerun, step_seconds: float
) -> MeasuredSetting:
    without = baseline if isinstance(baseline, str) else rerun(emulation)
    if isinstance(baseline, str) or isinstance(without, str):
        return MeasuredSetting(finding.title, trouble=str(without))
    least, most = _saved_shares(baseline, without)
    return MeasuredSetting(finding.title, saved=(least * step_seconds, most * step_seconds))


def _saved_shares(before: CaptureView, after: CaptureView) -> tuple[float, float]:
    """Return the smallest and the largest saving, as shares of a step.

    The savings follow from the middle halves of the step times of both runs. They are shares, because the machine may
    be slower in these runs than in the first run. If the middle halves overlap, the runs show no difference, and the
    smallest saving is negative.
    """
    (before_low, before_high), (after_low, after_high) = _quartiles(before), _quartiles(after)
    return 1 - after_high / before_low, 1 - after_low / before_high


def _quartiles(view: CaptureView) -> tuple[float, float]:
    times = view.unprofiled_seconds
    if not times:
        return view.step_seconds, view.step_seconds
    first, _, third = quantiles(times, method="inclusive")
    return first, third


def with_measured_settings(diagnosis: Diagnosis, measured: tuple[MeasuredSetting, ...]) -> Diagnosis:
    """Return the diagnosis with the measured costs, without settings of negligible cost."""
    by_title = {each.title: each for each in measured}
    findings = []
    for finding in diagnosis.findings:
        measurement = by_title.get(finding.title) if finding.rule == settings.RULE else None
        if measurement is None:
            findings.append(finding)
        elif measurement.saved is None:
            findings.append(
                _with_hint(finding, f"The cost of this setting could not be measured: {measurement.trouble}.")
            )
        elif is_measurable(diagnosis, measurement):
            findings.append(_with_cost(diagnosis, finding, measurement.saved))
        elif not is_negligible(diagnosis, measurement):
            findings.append(_with_hint(finding, "Step times varied too much to measure the cost of this setting."))
    return replace(diagnosis, findings=tuple(sorted(findings, key=lambda finding: -finding.gain)))


def is_measurable(diagnosis: Diagnosis, measurement: MeasuredSetting) -> bool:
    """Whether a setting certainly costs at least MIN_SHARE of a step."""
    return measurement.saved is not None and measurement.saved[0] >= MIN_SHARE * diagnosis.view.step_seconds > 0


def is_negligible(diagnosis: Diagnosis, measurement: MeasuredSetting) -> bool:
    """Whether a setting certainly costs less than MIN_SHARE of a step."""
    return measurement.saved is not None and measurement.saved[1] < MIN_SHARE * diagnosis.view.step_seconds


def _with_hint(finding: Finding, hint: str) -> Finding:
    return replace(finding, evidence=(hint, *finding.evidence[1:]))


def _with_cost(diagnosis: Diagnosis, finding: Finding, saved: tuple[float, float]) -> Finding:
    step = diagnosis.view.step_seconds
    low, high = min(saved[0], step), min(saved[1], step)
    hint = f"Without this setting, a second run of the script saved {format_seconds_range(low, high)} per step."
    basis = "measured in two more runs of the script, with and without the setting"
    cures = tuple(
        replace(cure, title=cure.title.removesuffix(settings.MEASURE_HINT), low=low, high=high, basis=basis)
        for cure in finding.cures
    )
    return replace(finding, seconds=(low + high) / 2, cures=cures, evidence=(hint, *finding.evidence[1:]))
