"""All rules asked, and what they found put in order: the cause whose cure wins most comes first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from forebay.doctor.analyse.case import Case
from forebay.doctor.diagnosis.savings import Simulation
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.verification import Verification
from forebay.doctor.predict.machines import gpu_of
from forebay.doctor.predict.simulate import Prediction
from forebay.doctor.rules.finding import Finding

__all__ = ["RULES", "Elsewhere", "Verdict", "judge"]

RULES = (  # files of rules/, in the order of a step; which of them charges for an event, accusers.py says
    "input_bound",
    "loader",
    "made_in_loop",
    "repeated_upload",
    "conversion_in_loop",
    "pageable_upload",
    "copy_not_overlapped",
    "many_small_copies",
    "wide_dtype",
    "fits_on_device",
    "placement",
    "eager",
    "tiny_ops",
    "launch_bound",
    "small_batch",
    "low_occupancy",
    "tensor_cores",
    "faster_on_cpu",
    "collectives",
    "retracing",
    "rebuilt",
    "constants",
    "read_back",
    "host_check",
    "sync",
    "threads",
    "out_of_memory",
)

WORTH_TELLING = 0.03  # of a step: less is not worth anybody's morning
SEVERE = 0.2


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The script as it is, on another machine."""

    told: str  # which, in words
    step: Prediction | None  # None where the timeline cannot be run again
    doubt: str = ""  # why not


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds a script back, if anything does."""

    case: Case
    findings: tuple[Finding, ...]  # the one whose cure wins most first
    silent: tuple[str, ...] = ()  # rules that could not be asked, and why
    verification: Verification | None = None  # where the main cause's cure was tried
    together: Prediction | None = None  # a step with the best cure of every finding
    elsewhere: Elsewhere | None = None  # a step on another machine, where that was asked for

    @property
    def main(self) -> Finding | None:
        """What holds the script back; a warning of what may come does not."""
        return self.findings[0] if self.findings and self.findings[0].win else None

    def share(self, finding: Finding) -> float:
        """Of a step that its best cure wins."""
        return finding.win / self.case.step_seconds if self.case.step_seconds else 0.0

    def severity(self, finding: Finding) -> str:
        if not finding.win:
            return "warning"
        return "severe" if self.share(finding) >= SEVERE else "moderate"


def judge(capture: Capture, rules: Iterable[str] = RULES, *, device: str = "", link: str = "") -> Verdict:
    """Ask every rule, and run the recorded steps again with what it suggests; on another device or link too."""
    case = Case(capture)
    found: list[Finding] = []
    silent = []
    for rule in rules:
        try:
            found += _load(rule)(case)
        except Exception as error:  # one rule must not take the others with it
            silent.append(f"rule {rule} failed: {type(error).__name__}: {error}")
    simulation = _simulation(case, silent)
    found = [simulation.settled(finding) for finding in found]
    limit = WORTH_TELLING * case.step_seconds
    worth = [finding for finding in found if finding.win >= limit > 0 or not finding.seconds]
    findings = tuple(sorted(worth, key=lambda finding: -finding.win))
    elsewhere = _elsewhere(simulation, device, link) if device or link else None
    return Verdict(case, findings, tuple(silent), together=simulation.together(findings), elsewhere=elsewhere)


def _simulation(case: Case, silent: list[str]) -> Simulation:
    """What cannot be run again leaves cures their bounds; it must not take the verdict with it."""
    try:
        return Simulation.of(case)
    except Exception as error:
        silent.append(f"cures have only bounds: running the steps again failed: {type(error).__name__}: {error}")
        return Simulation(case)


def _elsewhere(simulation: Simulation, device: str, link: str) -> Elsewhere:
    told = " behind ".join(name for name in (device or "this GPU", link) if name)
    step = simulation.elsewhere(gpu_of(simulation.case), device=device, link=link)
    return Elsewhere(told, step, "" if step else simulation.doubt)


def _load(rule: str) -> Callable[[Case], Iterable[Finding]]:
    examine: Callable[[Case], Iterable[Finding]] = import_module(f"forebay.doctor.rules.{rule}").examine
    return examine
