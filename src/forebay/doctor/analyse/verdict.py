"""All rules asked, and what they found put in order: the cause whose cure wins most comes first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.finding import Finding
from forebay.doctor.captured import Capture

__all__ = ["RULES", "Verdict", "judge"]

RULES = (  # files of rules/, in the order of a step; which of them charges for an event, accusers.py says
    "input_bound",
    "loader",
    "repeated_upload",
    "conversion_in_loop",
    "pageable_upload",
    "many_small_copies",
    "wide_dtype",
    "fits_on_device",
    "placement",
    "eager",
    "tiny_ops",
    "small_batch",
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
class Verdict:
    """What holds a script back, if anything does."""

    case: Case
    findings: tuple[Finding, ...]  # the one whose cure wins most first
    silent: tuple[str, ...] = ()  # rules that could not be asked, and why

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


def judge(capture: Capture, rules: Iterable[str] = RULES) -> Verdict:
    """Ask every rule."""
    case = Case(capture)
    found: list[Finding] = []
    silent = []
    for rule in rules:
        try:
            found += _load(rule)(case)
        except Exception as error:  # one rule must not take the others with it
            silent.append(f"rule {rule} failed: {type(error).__name__}: {error}")
    limit = WORTH_TELLING * case.step_seconds
    worth = [finding for finding in found if finding.win >= limit > 0 or not finding.seconds]
    return Verdict(case, tuple(sorted(worth, key=lambda finding: -finding.win)), tuple(silent))


def _load(rule: str) -> Callable[[Case], Iterable[Finding]]:
    examine: Callable[[Case], Iterable[Finding]] = import_module(f"forebay.doctor.analyse.rules.{rule}").examine
    return examine
