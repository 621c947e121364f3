"""The diagnosis: the findings of all rules, ordered by the gain of their cures."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from forebay.core import registry
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.diagnosis.savings import Simulation
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Verification
from forebay.doctor.predict.machines import gpu_name
from forebay.doctor.predict.simulate import Prediction
from forebay.doctor.rules.examples import mark_examples
from forebay.doctor.rules.finding import Finding
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.registry import RULES, load_rule, view_for_rules

__all__ = ["MIN_SHARE", "RUN_RULES", "SEVERE_SHARE", "Diagnosis", "OtherMachine", "diagnose", "run_factor"]

MIN_SHARE = 0.03  # of the step time; the diagnosis omits findings whose best cure saves less, except warnings
EQUAL_SHARE = 0.05  # of the step time; predictions are not exact enough to order smaller differences
LOWEST_GAIN_RULES = ("faster_on_cpu",)  # ranked by the least gain: their largest gains were far above measured ones
RUN_RULES = ("pauses", "drift")  # rules about the step history of the whole run
MIN_RARE_FACTOR = 2.0  # mean divided by median of the profiled steps; if it is larger, rare steps take most of the time
SEVERE_SHARE = 0.2  # of the step time; a finding is severe if its best cure saves at least this


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """The prediction for the unchanged script on another machine."""

    machine: str  # such as "a100 with pcie4" or "this GPU with pcie4"
    step: Prediction | None  # None if the simulation is not reliable
    reason: str = ""  # why there is no prediction; empty if there is one


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of one capture."""

    view: RuleView
    findings: tuple[Finding, ...]  # largest gain first (see `_sort_key`)
    failures: tuple[str, ...] = ()  # a sentence for each rule that failed, and one if the simulation failed
    verification: Verification | None = None  # None without --verify
    all_cures: Prediction | None = None  # step with the best cure of every finding; see `Simulation.predict_all_cures`
    other_machine: OtherMachine | None = None  # None without --as and --link

    @property
    def main(self) -> Finding | None:
        """The first finding; None if no finding has a gain."""
        return self.findings[0] if self.findings and self.findings[0].gain else None

    def __repr__(self) -> str:
        count = len(self.findings)
        first = f", first: {self.findings[0].rule}" if count else ""
        return f"<Diagnosis: {count} finding{'' if count == 1 else 's'}{first}>"

    def _repr_html_(self) -> str:
        # `report` is a higher layer, so this module must not import it.
        card: str = registry.load("forebay.doctor.report.html:render_card")(self)
        return card

    def share(self, finding: Finding) -> float:
        """Return the share of the step time that the best cure of the finding saves."""
        return finding.gain / self.view.step_seconds if self.view.step_seconds else 0.0

    def severity(self, finding: Finding) -> str:
        """Return "warning" for a finding without a gain, else "moderate" or "severe"."""
        if not finding.gain:
            return "warning"
        return "severe" if self.share(finding) >= SEVERE_SHARE else "moderate"


def diagnose(capture: Capture, rules: Iterable[str] = tuple(RULES), *, device: str = "", link: str = "") -> Diagnosis:
    """Run the rules on a capture, and simulate the recorded steps with each cure.

    If `device` or `link` is set, also predict the step time on that GPU or link. `device` accepts the values of --as,
    and `link` those of --link.
    """
    view = view_for_rules(capture)
    candidates: list[Finding] = []
    failures: list[str] = []
    for rule in rules:
        try:
            candidates += (mark_examples(view, finding) for finding in load_rule(rule).examine(view))
        except Exception as error:  # a rule that fails must not stop the remaining rules
            failures.append(f"rule {rule} failed: {type(error).__name__}: {error}")
    simulation = _build_simulation(view, failures)
    candidates = [simulation.with_predicted_gain(finding) for finding in candidates]
    # Warnings cost no time, so the limit on the saved time does not apply to them. Without a step time, all findings
    # are warnings.
    reported = [finding for finding in candidates if _saves_enough(view, finding) or not finding.seconds]
    findings = tuple(sorted(reported, key=lambda finding: _sort_key(finding, view)))
    return Diagnosis(
        view,
        findings,
        tuple(failures),
        all_cures=simulation.predict_all_cures(findings),
        other_machine=_predict_other_machine(simulation, device, link) if device or link else None,
    )


def _saves_enough(view: CaptureView, finding: Finding) -> bool:
    """Whether the best cure saves MIN_SHARE of a step.

    If the script uses a GPU that was not recorded, each cure may save nothing. In this case, use the largest gain of
    the best cure and the limit EQUAL_SHARE.
    """
    if not finding.cures or not view.step_seconds:
        return False
    if view.has_gpu and view.device is None:
        return finding.best_cure.high >= EQUAL_SHARE * view.step_seconds
    return finding.gain >= MIN_SHARE * view.step_seconds


def run_factor(view: CaptureView, finding: Finding) -> float:
    """Return the factor from `Finding.seconds` to the cost per step, averaged over the run.

    A finding of RUN_RULES costs a share of the run, and `Finding.seconds` is this share of `view.step_seconds`. The
    step time is a median, so the factor is the mean step time divided by the step time. The same holds for lines of
    `host` that run only in rare, long steps. For other findings, it is 1.
    """
    step = view.step_seconds
    if finding.rule == "host" and view.steps is not None and len(view.steps):
        lengths = [end - start for start, end in pairwise(view.steps.edges)]
        factor = fmean(lengths) / median(lengths) if median(lengths) else 1.0
        return factor if factor > MIN_RARE_FACTOR else 1.0
    mean = view.mean_seconds
    return mean / step if finding.rule in RUN_RULES and mean > step > 0 else 1.0


def _sort_key(finding: Finding, view: CaptureView) -> tuple[float, bool, float]:
    """Return the key by which findings are sorted: largest gain first, warnings last.

    Gains that differ by less than EQUAL_SHARE of a step may count as equal. Of findings with equal gains, the one whose
    best cure saves the most at worst comes first. If a cure changes the training, only half of its gain counts. Of
    LOWEST_GAIN_RULES, only the least gain counts.
    """
    if not finding.gain or not view.step_seconds:
        return 0.0, True, 0.0
    factor = run_factor(view, finding) / (2 if finding.changes_training else 1)
    gain = finding.best_cure.low if finding.rule in LOWEST_GAIN_RULES else finding.gain
    equal_gains = -(gain * factor // (EQUAL_SHARE * view.step_seconds))
    return equal_gains, False, -finding.best_cure.low * run_factor(view, finding)


def _build_simulation(view: CaptureView, failures: list[str]) -> Simulation:
    """Build the simulation. If this fails, cures have no gain."""
    try:
        return Simulation.from_view(view)
    except Exception as error:
        failures.append(f"the simulation failed, so the report has no gains: {type(error).__name__}: {error}")
        return Simulation(view)


def _predict_other_machine(simulation: Simulation, device: str, link: str) -> OtherMachine:
    machine = " with ".join(name for name in (device or "this GPU", link) if name)
    step = simulation.predict_other_machine(gpu_name(simulation.view), device=device, link=link)
    return OtherMachine(machine, step, "" if step else simulation.unreliable_reason)
