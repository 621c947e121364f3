"""Scripts with faults that need a GPU, and healthy twins, for the framework in FOREBAY_FRAMEWORK.

test_faults.py runs this file once for each framework, in its own process, because frameworks conflict in one process.
If FOREBAY_KEEP names a folder, this file saves all captures and diagnoses there.
"""

import gc
import json
import os
import sys
from pathlib import Path

import pytest
from tests.gpu.fault_expectations import expect_fault, expect_healthy, format_findings
from tests.gpu.fault_lines import LINES
from tests.support.restored_interpreter import restored_interpreter  # noqa: F401 (an autouse fixture)

from forebay.doctor.capture.profiled_run import RunRequest, run_profiled
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.report.document import to_document

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
KEEP_FOLDER = os.environ.get("FOREBAY_KEEP")
FOLDER = Path(__file__).parent / "faults" / FRAMEWORK
FAULTS = LINES[FRAMEWORK]
# The detector takes a call for the end of a step only if the call recurs for `wait_seconds`; a copy must recur for
# twice this time. The scripts run for a second or two, so this time is short. If it were shorter, the detector could
# mistake a loop inside a step for the steps.
SHORT_RUN = {"warm_up": 5, "steps": 20, "untraced_steps": 20, "wait_seconds": 0.2, "sample_seconds": 0.05}


def diagnose_script(name):
    """Profile a script until it has enough steps, and return the diagnosis."""
    session = Session(StepDetector(**SHORT_RUN), on_enough=sys.exit)
    try:
        capture = run_profiled(RunRequest(str(FOLDER / f"{name}.py")), session)
    finally:
        reset_frameworks()
    diagnosis = diagnose(capture)
    if KEEP_FOLDER:
        save_diagnosis(Path(KEEP_FOLDER) / FRAMEWORK, name, diagnosis)
    return diagnosis


def save_diagnosis(folder, name, diagnosis):
    folder.mkdir(parents=True, exist_ok=True)
    diagnosis.view.capture.save(folder / f"{name}.capture")
    (folder / f"{name}.json").write_text(json.dumps(to_document(diagnosis), indent=1))
    with (folder / "verdicts.txt").open("a") as diagnoses:
        diagnoses.write(f"{name}\n{format_findings(diagnosis)}\n\n")


def reset_frameworks():
    """Release memory and reset settings before the next script."""
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].set_float32_matmul_precision("highest")
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_found_with_its_line_or_is_a_warning(rule):
    expect_fault(FRAMEWORK, rule, diagnose_script(rule))


@pytest.mark.parametrize("rule", FAULTS)
def test_a_healthy_twin_has_no_finding_of_the_rule(rule):
    expect_healthy(rule, diagnose_script(f"{rule}_healthy"))
