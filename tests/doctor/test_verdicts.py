"""From a script to its verdict: every fault is named by its rule and on its line; no healthy twin is accused of it.

Twins may be slow for other reasons on a machine that is busy, so they are asked about their own fault only.
"""

from pathlib import Path

import pytest
from tests.doctor.fault_lines import LINES
from tests.doctor.processes import WAITING

from forebay.doctor.analyse.rules import small_batch
from forebay.doctor.analyse.verdict import RULES, judge

FOLDER = Path(__file__).parent / "scripts"
PROCESSES = tuple(f"scripts {framework}" for framework in LINES)
FAULTS = [(framework, name) for framework, names in LINES.items() for name in names]
pytestmark = WAITING

FREE_ON_THE_CPU = {("torch", "read_back"), ("tensorflow", "read_back")}  # a value is there when the call returns
ALSO_CALLED = {  # another name for the same: which one comes first is a matter of what costs more
    ("torch", "input_bound"): {"loader"},
    ("cupy", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "many_small_copies"): {"conversion_in_loop"},
}
JUST_FITTED = {("keras", "fit_arrays"), ("keras", "fit_tf_data")}  # without a fault


@pytest.fixture(autouse=True)
def _on_a_slow_machine_too(monkeypatch):
    """A step that has only Python in it is as long there as one that computes is here."""
    monkeypatch.setattr(small_batch, "LONGEST_SECONDS", 60.0)


def rules_of(framework, name):
    """A script is called by its rule, and by what else tells it from others of that rule."""
    rule = max((rule for rule in RULES if name.startswith(rule)), key=len)
    return {rule} | ALSO_CALLED.get((framework, name), set())


def test_every_script_has_a_fault_or_is_the_twin_of_one_that_has():
    scripts = {(path.parent.name, path.stem) for path in FOLDER.glob("*/*.py")}
    assert scripts - JUST_FITTED == {*FAULTS, *((framework, f"{name}_healthy") for framework, name in FAULTS)}


@pytest.mark.parametrize(("framework", "name"), [fault for fault in FAULTS if fault not in FREE_ON_THE_CPU])
def test_a_fault_is_named_on_its_line(processes, framework, name):
    verdict = judge(processes.capture(framework, name))
    named = [finding for finding in verdict.findings if finding.rule in rules_of(framework, name)]
    assert named, [finding.title for finding in verdict.findings]
    assert (named[0].line.text if named[0].line else "").startswith(LINES[framework][name])
    assert verdict.silent == ()


@pytest.mark.parametrize(("framework", "name"), FAULTS)
def test_a_healthy_twin_is_not_accused_of_it(processes, framework, name):
    verdict = judge(processes.capture(framework, f"{name}_healthy"))
    accused = [finding.title for finding in verdict.findings if finding.rule in rules_of(framework, name)]
    assert accused == []
    assert verdict.silent == ()
