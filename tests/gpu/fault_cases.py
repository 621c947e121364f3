"""Scripts with a fault that needs a GPU, and their healthy twins, for the framework of FOREBAY_FRAMEWORK.

Run by test_faults, in a process of its own. With FOREBAY_KEEP every capture and verdict is left in that folder.
"""

import gc
import json
import os
import sys
from pathlib import Path

import pytest
from tests.gpu.fault_lines import ALSO_CALLED, LINES, WARNINGS

from forebay.doctor.analyse.verdict import judge
from forebay.doctor.capture.running import Run, run_watched
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Stepping
from forebay.doctor.report.document import document_of

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
KEEP = os.environ.get("FOREBAY_KEEP")
FOLDER = Path(__file__).parent / "faults" / FRAMEWORK
FAULTS = LINES[FRAMEWORK]
# Scripts are over in a second or two; but a loop inside a step must not be taken for the one around it.
IMPATIENT = {"warm_up": 5, "steps": 20, "untraced_steps": 20, "patience_seconds": 0.4, "glance_seconds": 0.05}


def verdict_on(name):
    """Of a script that is ended as soon as enough was seen."""
    session = Session(Stepping(**IMPATIENT), done=sys.exit)
    try:
        capture = run_watched(Run(str(FOLDER / f"{name}.py")), session)
    finally:
        leave_nothing()
    verdict = judge(capture)
    if KEEP:
        keep(Path(KEEP) / FRAMEWORK, name, verdict)
    return verdict


def keep(folder, name, verdict):
    folder.mkdir(parents=True, exist_ok=True)
    verdict.case.capture.save(folder / f"{name}.capture")
    (folder / f"{name}.json").write_text(json.dumps(document_of(verdict), indent=1))
    with (folder / "verdicts.txt").open("a") as verdicts:
        verdicts.write(f"{name}\n{told(verdict)}\n\n")


def leave_nothing():
    """Memory and settings of one script would be the next one's."""
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].set_float32_matmul_precision("highest")
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def told(verdict):
    """All that was found, in lines, for whoever has to find out why it was not what it should be."""
    case = verdict.case
    capture, view = case.capture, case.device
    parts = ", ".join(f"{part} {1e3 * spent:.2f}" for part, spent in case.step_parts.items() if spent > 1e-5)
    busy = f"{view.busy_share:.0%} busy, {view.kernels_per_step:.0f} kernels" if view else "not recorded"
    return "\n".join(
        [
            f"  ended: {capture.ended}; steps: {case.steps and (len(case.steps), case.steps.anchor[:2])}",
            f"  {1e3 * case.step_seconds:.2f} ms a step: {parts}; the device: {busy}",
            *(
                f"  {found.rule} {verdict.share(found):.0%}, {found.title} | {text_of(found)}"
                for found in verdict.findings
            ),
            *(f"  note: {note}" for note in (*capture.notes, *verdict.silent)),
        ]
    )


def text_of(finding):
    return finding.line.text if finding.line else ""


def expect(right, verdict):
    """Else all that was found is told, and nothing of the code that asked: one run has to tell why."""
    if not right:
        pytest.fail(told(verdict), pytrace=False)


@pytest.mark.parametrize("rule", [rule for rule in FAULTS if rule not in WARNINGS])
def test_a_fault_comes_first_and_on_its_line(rule):
    verdict = verdict_on(rule)
    first = verdict.main.rule if verdict.main else None
    named = [text_of(finding) for finding in verdict.findings if finding.rule == rule]
    expect(first in {rule} | ALSO_CALLED.get((FRAMEWORK, rule), set()), verdict)
    expect(named and named[0].startswith(FAULTS[rule]), verdict)
    assert verdict.silent == ()


@pytest.mark.parametrize("rule", [rule for rule in FAULTS if rule in WARNINGS])
def test_of_what_may_come_a_script_is_warned(rule):
    verdict = verdict_on(rule)
    expect(rule in {finding.rule for finding in verdict.findings}, verdict)
    assert verdict.silent == ()


@pytest.mark.parametrize("rule", FAULTS)
def test_a_healthy_twin_is_not_accused_of_it(rule):
    verdict = verdict_on(f"{rule}_healthy")
    expect(verdict.case.capture.ended == "done", verdict)
    expect(rule not in {finding.rule for finding in verdict.findings}, verdict)
    assert verdict.silent == ()
