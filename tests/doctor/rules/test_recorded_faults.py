"""Diagnoses of captures that were recorded on an H200: faults that need a GPU, and their healthy twins.

`tests/gpu/test_faults.py` records the captures from the scripts in `tests/gpu/faults`. `situations/recorded` has
captures of scripts in `situations`.
"""

import pytest
from tests.doctor.situation_snapshots import load_snapshots, to_snapshot
from tests.gpu.fault_expectations import expect_fault, expect_healthy
from tests.gpu.fault_lines import LINES
from tests.support.paths import DOCTOR

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture

FOLDER = DOCTOR / "recorded" / "faults"
SITUATIONS = sorted(path.stem for path in (DOCTOR / "situations" / "recorded").glob("*.gz"))
FAULTS = [(framework, rule) for framework, rules in LINES.items() for rule in rules]


def diagnosis_of_capture(framework, name):
    return diagnose(Capture.load(FOLDER / framework / f"{name}.gz"))


def test_every_fault_and_every_healthy_twin_has_a_recording():
    recorded = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.gz")}
    assert recorded == {*FAULTS, *((framework, f"{rule}_healthy") for framework, rule in FAULTS)}


@pytest.mark.parametrize(("framework", "rule"), FAULTS)
def test_a_fault_is_the_main_finding_or_a_warning_on_its_line(framework, rule):
    expect_fault(framework, rule, diagnosis_of_capture(framework, rule))


@pytest.mark.parametrize(("framework", "rule"), FAULTS)
def test_a_healthy_twin_has_no_such_finding(framework, rule):
    expect_healthy(rule, diagnosis_of_capture(framework, f"{rule}_healthy"))


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_frequent_situation_has_the_expected_diagnosis(name):
    diagnosis = diagnose(Capture.load(DOCTOR / "situations" / "recorded" / f"{name}.gz"))
    findings = [(finding.rule, finding.line.text if finding.line else None) for finding in diagnosis.findings]
    expected = load_snapshots()[name]["gpu"]
    assert to_snapshot({"loop": diagnosis.view.steps is not None, "findings": findings}, expected) == expected
