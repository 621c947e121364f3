"""What is to be said of the scripts of scripts/: a fault by its rule and on its line, no twin accused of it."""

from unittest.mock import patch

from tests.doctor.rules.fault_lines import LINES

from forebay.doctor.diagnosis.diagnose import RULES, Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.rules import small_batch
from forebay.doctor.rules.finding import Finding

__all__ = ["FREE_ON_THE_CPU", "JUST_FITTED", "as_expected", "judged", "named", "text_of"]

FREE_ON_THE_CPU = {("torch", "read_back"), ("tensorflow", "read_back")}  # a value is there when the call returns
JUST_FITTED = {("keras", "fit_arrays"), ("keras", "fit_tf_data")}  # without a fault
ALSO_CALLED = {  # another name for the same: which one comes first is a matter of what costs more
    ("torch", "input_bound"): {"loader"},
    ("cupy", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "many_small_copies"): {"conversion_in_loop"},
}
TWIN = "_healthy"


def judged(capture: Capture) -> Diagnosis:
    """Of a slow machine too: a step that has only Python in it is as long there as one that computes is here."""
    with patch.object(small_batch, "LONGEST_SECONDS", 60.0):
        return diagnose(capture)


def named(framework: str, name: str, diagnosis: Diagnosis) -> list[Finding]:
    """What the verdict says of the fault of this script, or of the twin of this script."""
    return [finding for finding in diagnosis.findings if finding.rule in _rules_of(framework, name.removesuffix(TWIN))]


def as_expected(framework: str, name: str, capture: Capture) -> bool:
    if (framework, name) in FREE_ON_THE_CPU | JUST_FITTED:
        return True
    found = named(framework, name, judged(capture))
    if name.endswith(TWIN):
        return not found
    return bool(found) and text_of(found[0]).startswith(LINES[framework][name])


def text_of(finding: Finding) -> str:
    return finding.line.text if finding.line else ""


def _rules_of(framework: str, name: str) -> set[str]:
    """A script is called by its rule, and by what else tells it from others of that rule."""
    rule = max((rule for rule in RULES if name.startswith(rule)), key=len)
    return {rule} | ALSO_CALLED.get((framework, name), set())
