"""From a script to its verdict: every fault is named by its rule and on its line; no healthy twin is accused of it.

Twins may be slow for other reasons on a machine that is busy, so they are asked about their own fault only.
"""

import pytest
from tests.doctor.expected import FREE_ON_THE_CPU, JUST_FITTED, diagnosed, named, text_of
from tests.doctor.rules.fault_lines import LINES
from tests.support.paths import DOCTOR

FOLDER = DOCTOR / "scripts"
PROCESSES = tuple(f"scripts {framework}" for framework in LINES)
FAULTS = [(framework, name) for framework, names in LINES.items() for name in names]


def test_every_script_has_a_fault_or_is_the_twin_of_one_that_has():
    scripts = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.py")}
    assert scripts - JUST_FITTED == {*FAULTS, *((framework, f"{name}_healthy") for framework, name in FAULTS)}


@pytest.mark.parametrize(("framework", "name"), [fault for fault in FAULTS if fault not in FREE_ON_THE_CPU])
def test_a_fault_is_named_on_its_line(framework_processes, framework, name):
    diagnosis = diagnosed(framework_processes.capture(framework, name))
    found = named(framework, name, diagnosis)
    assert found, [finding.title for finding in diagnosis.findings]
    assert text_of(found[0]).startswith(LINES[framework][name])
    assert diagnosis.failures == ()


@pytest.mark.parametrize(("framework", "name"), FAULTS)
def test_a_healthy_twin_has_no_such_finding(framework_processes, framework, name):
    diagnosis = diagnosed(framework_processes.capture(framework, f"{name}_healthy"))
    assert [finding.title for finding in named(framework, name, diagnosis)] == []
    assert diagnosis.failures == ()
