"""Expected diagnoses of scripts/: each fault has a finding on its line, and its healthy twin has none."""

from unittest.mock import patch

from tests.doctor.rules.fault_lines import LINES

from forebay.doctor.diagnosis.diagnose import RULES, Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.rules import small_batch
from forebay.doctor.rules.finding import Finding

__all__ = [
    "FREE_ON_THE_CPU",
    "HIDDEN_BY_LOAD",
    "WITHOUT_FAULT",
    "is_as_expected",
    "diagnose_script",
    "findings_of_fault",
    "line_text",
]

# On a busy machine, other work hides the growth of these steps. analyse/test_drift.py tests the rule without a clock.
HIDDEN_BY_LOAD = {("torch", "drift")}
# On the CPU, these read-backs cost nothing: the value is ready when the call returns.
FREE_ON_THE_CPU = {("torch", "read_back"), ("tensorflow", "read_back")}
WITHOUT_FAULT = {("keras", "fit_arrays"), ("keras", "fit_tf_data")}  # scripts without a fault
# Script -> other rules that may report its fault. The costs decide which finding comes first.
OTHER_RULES = {
    ("torch", "input_bound"): {"loader"},
    # On a busy machine, the cure of the conversion may save nothing. The batches are made on the same line.
    ("tensorflow", "conversion_in_loop"): {"made_in_loop"},
    ("cupy", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "many_small_copies"): {"conversion_in_loop"},
}
TWIN = "_healthy"  # end of the name of a healthy twin


def diagnose_script(capture: Capture) -> Diagnosis:
    """Diagnose without the step limit of `small_batch`, because steps are longer on slow machines."""
    with patch.object(small_batch, "MAX_STEP_SECONDS", 60.0):
        return diagnose(capture)


def findings_of_fault(framework: str, name: str, diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings for the fault of this script or of its twin."""
    return [finding for finding in diagnosis.findings if finding.rule in _rules_of(framework, name.removesuffix(TWIN))]


def is_as_expected(framework: str, name: str, capture: Capture) -> bool:
    """Whether a fault is found on its line, and not in a healthy twin; True for the exceptions above."""
    if (framework, name) in FREE_ON_THE_CPU | HIDDEN_BY_LOAD | WITHOUT_FAULT:
        return True
    found = findings_of_fault(framework, name, diagnose_script(capture))
    if name.endswith(TWIN):
        return not found
    return bool(found) and line_text(found[0]).startswith(LINES[framework][name])


def line_text(finding: Finding) -> str:
    return finding.line.text if finding.line else ""


def _rules_of(framework: str, name: str) -> set[str]:
    """Return the rules that may report a script's fault. The script's name begins with its rule."""
    rule = max((rule for rule in RULES if name.startswith(rule)), key=len)
    return {rule} | OTHER_RULES.get((framework, name), set())
