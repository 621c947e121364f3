"""Faults that only a GPU has, and their healthy twins.

Each framework has its own process.
"""

from pathlib import Path

import pytest
from tests.gpu.fault_lines import LINES
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases

CASES = Path(__file__).with_name("fault_cases.py")
FOLDER = Path(__file__).with_name("faults")


def test_every_script_has_a_fault_or_is_a_healthy_twin():
    scripts = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.py")}
    faults = [(framework, rule) for framework, rules in LINES.items() for rule in rules]
    assert scripts == {*faults, *((framework, f"{rule}_healthy") for framework, rule in faults)}


@pytest.mark.gpu
@pytest.mark.usefixtures("device")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fault_is_found_and_no_healthy_twin_has_a_finding_of_the_rule(framework):
    run_cases(CASES, framework, **SHARING)
