"""Settings whose cost only a second run shows: which runs the doctor makes, and how it reports their results."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest
from tests.doctor.captures import JAX, TORCH, loop, with_setting
from tests.doctor.report.test_document import SCHEMA
from tests.doctor.rules.rule_captures import FAULTS, WARNINGS
from tests.support.paths import DOCTOR

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.diagnosis.emulations import choose_emulation
from forebay.doctor.diagnosis.measured_settings import MAX_SETTINGS, measure_settings, with_measured_settings
from forebay.doctor.diagnosis.subprocess_run import removed_variable
from forebay.doctor.model.emulation import Emulation, EmulationKind, MeasuredSetting, Verification
from forebay.doctor.report.document import to_document
from forebay.doctor.report.terminal import render

STEP = 10e-3  # seconds
ANOMALY = "torch.autograd.set_detect_anomaly"
TRACED_SCRIPT = """
import tracemalloc
import cupy
tracemalloc.start()
total = cupy.ones(1).sum()
for _ in range(400):
    total = total + 1.0
    value = [float(number) for number in range(500)]
    if _ % 2:
        cupy.asarray(value)
"""


def steps_of(*milliseconds):
    """Return the view of a run whose unprofiled steps took these times."""
    return CaptureView(loop(frameworks=TORCH, untraced=tuple(each / 1e3 for each in milliseconds)))


def measured(saved=None, trouble="", setting=ANOMALY):
    """Return a diagnosis with the measurement of a setting: the saved seconds per step, or the reason without them."""
    diagnosis = diagnose(with_setting(loop(frameworks=TORCH), setting, 30))
    (finding,) = diagnosis.findings
    return with_measured_settings(diagnosis, (MeasuredSetting(finding.title, saved, trouble),))


def test_a_setting_is_measured_against_a_run_as_written():
    runs = []

    def rerun(emulation):
        runs.append((emulation.kind, emulation.setting))
        return steps_of(*[4.0] * 6) if emulation.kind is EmulationKind.NOTHING else steps_of(*[1.0] * 6)

    (result,) = measure_settings(diagnose(with_setting(loop(frameworks=TORCH), ANOMALY, 30)), rerun)
    assert runs == [(EmulationKind.NOTHING, ""), (EmulationKind.OFF, ANOMALY)]
    assert result.saved == pytest.approx((0.75 * STEP, 0.75 * STEP))


def test_the_saved_time_comes_from_the_middle_half_of_the_steps():
    times = {EmulationKind.NOTHING: (4, 4, 4, 4, 9), EmulationKind.OFF: (2, 2, 3, 3, 3)}
    (result,) = measure_settings(
        diagnose(with_setting(loop(frameworks=TORCH), ANOMALY, 30)), lambda emulation: steps_of(*times[emulation.kind])
    )
    assert result.saved == pytest.approx((0.25 * STEP, 0.5 * STEP))


def test_the_finding_says_why_a_run_failed():
    diagnosis = diagnose(with_setting(loop(frameworks=TORCH), ANOMALY, 30))
    (result,) = measure_settings(diagnosis, lambda emulation: "it had too few steps")
    assert (result.saved, result.trouble) == (None, "it had too few steps")
    (finding,) = with_measured_settings(diagnosis, (result,)).findings
    assert finding.evidence[0] == "The cost of this setting could not be measured: it had too few steps."


def test_the_number_of_measured_settings_is_limited():
    capture = loop(frameworks=JAX)
    for setting in ("jax_debug_nans", "jax_debug_infs", "jax_enable_checks", "jax_check_tracer_leaks"):
        capture = with_setting(capture, setting, 30)
    assert len(measure_settings(diagnose(capture), lambda emulation: steps_of(*[1.0] * 6))) == MAX_SETTINGS


def test_a_finding_with_a_known_cost_is_not_measured_again():
    assert measure_settings(diagnose(FAULTS["a loss read every step"][1]), pytest.fail) == ()


def test_anomaly_mode_has_a_range_and_is_measured_because_samples_show_only_a_part_of_its_cost():
    diagnosis = diagnose(FAULTS["anomaly mode whose stacks were sampled"][1])
    (cure,) = diagnosis.main.cures
    assert 0 < 1.4 * cure.low < cure.high
    assert "Run with --verify to measure it." in diagnosis.main.evidence[0]
    times = {EmulationKind.NOTHING: (4, 4, 4, 4, 4), EmulationKind.OFF: (1, 1, 1, 1, 1)}
    (result,) = measure_settings(diagnosis, lambda emulation: steps_of(*times[emulation.kind]))
    step = diagnosis.view.step_seconds
    assert result.saved == pytest.approx((0.75 * step, 0.75 * step))
    (found,) = with_measured_settings(diagnosis, (result,)).findings
    assert (found.best_cure.low, found.best_cure.high) == pytest.approx((0.75 * step, 0.75 * step))


def test_a_measured_cost_becomes_the_gain_of_the_finding():
    diagnosis = measured(saved=(4e-3, 5e-3))
    cure = diagnosis.main.best_cure
    assert (diagnosis.main.seconds, cure.low, cure.high) == pytest.approx((4.5e-3, 4e-3, 5e-3))
    assert diagnosis.severity(diagnosis.main) == "severe"
    assert (
        diagnosis.main.evidence[0] == "Without this setting, a second run of the script saved 4.00 to 5.00 ms per step."
    )


@pytest.mark.parametrize("saved", [(-1e-3, 2e-4), (1e-4, 2e-4)])
def test_a_setting_with_a_negligible_cost_is_no_finding(saved):
    assert measured(saved=saved).findings == ()


def test_a_setting_stays_a_warning_if_step_times_vary_too_much():
    (finding,) = measured(saved=(-1e-3, 2e-3)).findings
    assert (finding.seconds, finding.gain) == (0, 0)
    assert finding.evidence[0] == "Step times varied too much to measure the cost of this setting."


def test_a_report_asks_for_a_measurement_until_there_is_one():
    diagnosis = diagnose(with_setting(loop(frameworks=TORCH), ANOMALY, 30))
    assert "run with --verify" in render(diagnosis).plain
    assert "run with --verify" not in render(measured(saved=(4e-3, 5e-3))).plain


@pytest.mark.parametrize(
    ("saved", "trouble", "text"),
    [
        ((4e-3, 5e-3), "", "Measured: without this setting, a step is 4.00 to 5.00 ms shorter."),
        ((-1e-3, 1e-4), "", "Measured: without this setting, a step is not shorter. The finding: Anomaly mode stores"),
        ((-1e-3, 1e-3), "", "Not measured: step times varied too much."),
        (None, "it had too few steps", "Not measured: it had too few steps."),
    ],
)
def test_the_report_and_the_document_contain_the_measurement(saved, trouble, text):
    diagnosis = measured(saved, trouble)
    title = diagnose(with_setting(loop(frameworks=TORCH), ANOMALY, 30)).findings[0].title
    verification = Verification(settings=(MeasuredSetting(title, saved, trouble),))
    diagnosis = replace(diagnosis, verification=verification)
    assert text in " ".join(render(diagnosis).plain.split())
    document = to_document(diagnosis)
    jsonschema.validate(document, SCHEMA)
    assert document["verification"]["settings"][0]["wins_seconds"] == (list(saved) if saved else None)


@pytest.mark.parametrize(
    ("warning", "setting", "line"),
    [
        ("anomaly mode", ANOMALY, 30),
        ("results checked for NaN", "jax_debug_nans", 30),
        ("a print that takes little time", "jax.debug.print", 30),
        ("memory blocks of Python that are checked", "PYTHONMALLOC", 0),
    ],
)
def test_a_setting_has_its_emulation(warning, setting, line):
    diagnosis = diagnose(WARNINGS[warning][1])
    emulation = choose_emulation(diagnosis.view, diagnosis.findings[0])
    assert (emulation.kind, emulation.setting, emulation.number) == (EmulationKind.OFF, setting, line)


def test_a_setting_that_wraps_the_model_is_not_emulated():
    diagnosis = diagnose(with_setting(loop(), "torch.nn.DataParallel", 30))
    assert isinstance(choose_emulation(diagnosis.view, diagnosis.findings[0]), str)
    assert measure_settings(diagnosis, pytest.fail) == ()


def test_only_a_variable_that_is_set_is_removed(monkeypatch):
    emulation = Emulation(EmulationKind.OFF, "", 0, setting="jax_debug_nans")
    monkeypatch.delenv("JAX_DEBUG_NANS", raising=False)
    assert removed_variable(emulation) == ""
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    assert removed_variable(emulation) == "JAX_DEBUG_NANS"
    assert removed_variable(Emulation(EmulationKind.NOTHING, "", 0)) == ""


@pytest.mark.timeout(300)
def test_verify_runs_the_script_without_the_setting(tmp_path):
    libraries = tmp_path / "site-packages"
    libraries.symlink_to(DOCTOR / "stand_in")
    (tmp_path / "train.py").write_text(TRACED_SCRIPT)
    command = [sys.executable, "-m", "forebay", "doctor", "--verify", "--json", "a.json", "train.py"]
    path = os.pathsep.join(filter(None, (str(libraries), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("running the script again") >= 2
    (setting,) = json.loads((tmp_path / "a.json").read_text())["verification"]["settings"]
    assert setting["title"].startswith("tracemalloc stores the Python stack of every allocation")
    assert (setting["trouble"], len(setting["wins_seconds"])) == (None, 2)
