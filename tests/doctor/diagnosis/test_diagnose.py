"""Diagnoses of `scripts/`: each fault is found on its line, and not in its twin.

A busy machine may slow a twin down for other reasons, so the tests look only for its own fault.
"""

import pytest
from tests.doctor.expected_diagnoses import (
    FREE_ON_THE_CPU,
    HIDDEN_BY_LOAD,
    WITHOUT_FAULT,
    diagnose_script,
    findings_of_fault,
    line_text,
)
from tests.doctor.rules.fault_lines import LINES
from tests.support.paths import DOCTOR

FOLDER = DOCTOR / "scripts"
FAULTS = [(framework, name) for framework, names in LINES.items() for name in names]
LONG = ("jax", "keras", "tensorflow", "torch")  # `test_applied_cures.py`, a long test, needs their captures anyway


def scripts_of(faults):
    """Parametrize a test with the framework and the name of each fault."""
    marked = [pytest.param(*fault, marks=[pytest.mark.long] * (fault[0] in LONG)) for fault in faults]
    return pytest.mark.parametrize(("framework", "name"), marked)


def test_every_script_is_faulty_or_the_healthy_twin_of_a_faulty_one():
    scripts = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.py")}
    assert scripts - WITHOUT_FAULT == {*FAULTS, *((framework, f"{name}_healthy") for framework, name in FAULTS)}


@scripts_of(fault for fault in FAULTS if fault not in FREE_ON_THE_CPU | HIDDEN_BY_LOAD)
def test_a_fault_is_found_on_its_line(framework_processes, framework, name):
    diagnosis = diagnose_script(framework_processes.capture(framework, name))
    found = findings_of_fault(framework, name, diagnosis)
    assert found, [finding.title for finding in diagnosis.findings]
    assert line_text(found[0]).startswith(LINES[framework][name])
    assert diagnosis.failures == ()


@scripts_of(FAULTS)
def test_a_healthy_twin_has_no_such_finding(framework_processes, framework, name):
    diagnosis = diagnose_script(framework_processes.capture(framework, f"{name}_healthy"))
    assert [finding.title for finding in findings_of_fault(framework, name, diagnosis)] == []
    assert diagnosis.failures == ()
