"""Runs of faults that need a GPU, and of their healthy twins, that were recorded on an H200: each is judged as it would
be there.

The scripts are those of `tests/gpu/faults`; a capture is what `tests/gpu/test_faults.py` keeps of one.
"""

import pytest
from tests.gpu.fault_expectations import expect_fault, expect_healthy
from tests.gpu.fault_lines import LINES
from tests.support.paths import DOCTOR

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture

FOLDER = DOCTOR / "recorded" / "faults"
FAULTS = [(framework, rule) for framework, rules in LINES.items() for rule in rules]


def verdict_on(framework, name):
    return diagnose(Capture.load(FOLDER / framework / f"{name}.gz"))


def test_every_fault_and_every_healthy_twin_was_recorded():
    recorded = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.gz")}
    assert recorded == {*FAULTS, *((framework, f"{rule}_healthy") for framework, rule in FAULTS)}


@pytest.mark.parametrize(("framework", "rule"), FAULTS)
def test_a_fault_comes_first_and_on_its_line_or_is_warned_of(framework, rule):
    expect_fault(framework, rule, verdict_on(framework, rule))


@pytest.mark.parametrize(("framework", "rule"), FAULTS)
def test_a_healthy_twin_is_not_accused_of_it(framework, rule):
    expect_healthy(rule, verdict_on(framework, f"{rule}_healthy"))
