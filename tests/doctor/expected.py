"""Expected diagnoses of scripts/: each fault has its rule on its line, and its healthy twin has no such finding."""

from unittest.mock import patch

from tests.doctor.rules.fault_lines import LINES

from forebay.doctor.diagnosis.diagnose import RULES, Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.rules import small_batch
from forebay.doctor.rules.finding import Finding

__all__ = ["FREE_ON_THE_CPU", "HIDDEN_BY_LOAD", "JUST_FITTED", "as_expected", "diagnosed", "named", "text_of"]

# On a busy machine, other work hides the growth of these steps. Generated histories test the rule without a clock.
HIDDEN_BY_LOAD = {("torch", "drift")}
FREE_ON_THE_CPU = {("torch", "read_back"), ("tensorflow", "read_back")}  # the value is ready when the call returns
JUST_FITTED = {("keras", "fit_arrays"), ("keras", "fit_tf_data")}  # scripts without a fault
ALSO_CALLED = {  # other rules for the same fault; the costs decide which one comes first
    ("torch", "input_bound"): {"loader"},
    ("cupy", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "many_small_copies"): {"conversion_in_loop"},
}
TWIN = "_healthy"


def diagnosed(capture: Capture) -> Diagnosis:
    """Diagnose without the step limit of `small_batch`, because steps are longer on slow machines."""
    with patch.object(small_batch, "LONGEST_STEP_SECONDS", 60.0):
        return diagnose(capture)


def named(framework: str, name: str, diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings for the fault of this script or of its twin."""
    return [finding for finding in diagnosis.findings if finding.rule in _rules_of(framework, name.removesuffix(TWIN))]


def as_expected(framework: str, name: str, capture: Capture) -> bool:
    if (framework, name) in FREE_ON_THE_CPU | HIDDEN_BY_LOAD | JUST_FITTED:
        return True
    found = named(framework, name, diagnosed(capture))
    if name.endswith(TWIN):
        return not found
    return bool(found) and text_of(found[0]).startswith(LINES[framework][name])


def text_of(finding: Finding) -> str:
    return finding.line.text if finding.line else ""


def _rules_of(framework: str, name: str) -> set[str]:
    """Return the rules that may report a script's fault. The script's name begins with its rule."""
    rule = max((rule for rule in RULES if name.startswith(rule)), key=len)
    return {rule} | ALSO_CALLED.get((framework, name), set())
