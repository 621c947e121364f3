"""Verification by emulation: which emulation belongs to a finding, how steps are timed, and what is reported."""

import json
import signal
import subprocess
from dataclasses import replace

import jsonschema
import pytest
from tests.doctor.captures import TORCH, batch, loop, prepare, script
from tests.doctor.report import report_samples as samples
from tests.doctor.report.test_document import SCHEMA
from tests.doctor.rules.rule_captures import FAULTS
from tests.support.paths import DOCTOR
from tests.support.run_python import run_python

from forebay.doctor.capture.signal_handlers import SigtermReceived
from forebay.doctor.diagnosis import subprocess_run
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.diagnosis.emulations import choose_emulation
from forebay.doctor.diagnosis.verify import _emulated_cure
from forebay.doctor.emulate.rerun import BLOCK_STEPS, TimedStepDetector
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Emulation, EmulationKind, FeedRows, Verification
from forebay.doctor.report.document import to_document
from forebay.doctor.report.html import render_page
from forebay.doctor.report.terminal import render

pytestmark = pytest.mark.timeout(600)  # seconds; some tests import a framework twice
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "NO_COLOR": "1"}
SETTINGS |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "COLUMNS": "80"}
STALE_VALUES_FAIL = """
import cupy
total, before = cupy.ones(1).sum(), 0.0
for _ in range(2000):
    total = total + 1.0
    value = float(total)
    if value <= before:
        raise ValueError("it does not grow")
    before = value
"""
SLOW_ROWS = loop(batch(ms=6, line=9, workers=0).containing(prepare("row", 5)), frameworks=TORCH)
NO_LOOP = """
import cupy
cupy.asarray([1.0])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return variables for a process that imports the stand-in for CuPy.

    Its folder is named site-packages, so the doctor treats the stand-in as library code.
    """
    libraries = tmp_path_factory.mktemp("libraries") / "site-packages"
    libraries.symlink_to(DOCTOR / "stand_in")
    return SETTINGS | {"PYTHONPATH": str(libraries)}


def run(*arguments, environment, cwd):
    return run_python(*arguments, cwd=cwd, **environment)


def verify(*arguments, environment, cwd):
    return run("-m", "forebay", "doctor", "--verify", *arguments, environment=environment, cwd=cwd)


def emulation_for(fault):
    rule, capture, _ = FAULTS[fault]
    diagnosis = diagnose(capture)
    return choose_emulation(diagnosis.view, next(finding for finding in diagnosis.findings if finding.rule == rule))


@pytest.mark.parametrize(
    ("fault", "kind", "line", "every"),
    [
        ("the same array every step", EmulationKind.REMEMBER, 3, 0),
        ("fresh arrays converted", EmulationKind.REUSE, 5, 0),
        ("a hundred small uploads", EmulationKind.REUSE, 20, 100),
        ("a large copy out of pageable memory", EmulationKind.LOCK, 6, 0),
        ("a slow generator", EmulationKind.RESIDENT, 9, 0),
        ("an explicit wait", EmulationKind.SKIP, 27, 100),
        ("doubles that arrive as floats", EmulationKind.NARROW, 21, 0),
    ],
)
def test_a_finding_has_its_emulation(fault, kind, line, every):
    assert emulation_for(fault) == Emulation(kind, "train.py", line, every)


def test_a_copy_that_blocks_is_prefetched():
    finding = replace(samples.UPLOAD, rule="copy_not_overlapped")
    assert choose_emulation(samples.ordinary().view, finding) == Emulation(
        EmulationKind.PREFETCH, "/home/me/project/train.py", 34
    )


def test_the_cure_more_workers_is_measured_with_more_workers():
    assert emulation_for("a loader that cannot keep up") == Emulation(EmulationKind.WORKERS, "train.py", 9, workers=8)


def test_the_report_does_not_call_results_of_workers_wrong():
    measured = Verification(EmulationKind.WORKERS, (0.001, 0.002), 0.002)
    report = render(replace(samples.ordinary(), verification=measured)).plain
    assert "worker processes" in report
    assert "results of that run are wrong" not in report


def test_the_cure_use_workers_is_measured_with_workers():
    finding = diagnose(SLOW_ROWS).main
    emulation = choose_emulation(diagnose(SLOW_ROWS).view, finding)
    assert emulation == Emulation(EmulationKind.WORKERS, "train.py", 9, workers=2)
    cure = _emulated_cure(finding, EmulationKind.WORKERS)
    assert cure.title == "use workers"
    assert "num_workers=2" in cure.code
    assert Emulation.from_json(emulation.to_json()) == emulation


BATCH_LOOP = script(
    "for epoch in range(9):",
    "    for x, y in loader:",
    "        train(x, y)",
    "loader = DataLoader(images, batch_size=50)",
)


def test_the_cure_prefetch_batches_is_measured_with_a_feed():
    """The loader waits for files, so a thread can make its batches during the step."""
    facts = {"busy_cores": 0.5, **BATCH_LOOP}
    slow = batch(ms=6, line=2, workers=0, batch_rows=50, runnable=1e-4)
    diagnosis = diagnose(loop(slow, frameworks=TORCH, facts=facts, machine={"cores": 1}))
    cures = {cure.title: cure for cure in diagnosis.main.cures}
    prefetch = cures["prefetch batches during the step"]
    finding = replace(diagnosis.main, cures=(prefetch,))
    assert choose_emulation(diagnosis.view, finding) == Emulation(EmulationKind.FEED, "train.py", 2, rows="batches")
    feed = replace(prefetch, code="feed = fb.from_source(images).batch(50).feed('torch')")
    assert choose_emulation(diagnosis.view, replace(finding, cures=(feed,))).rows == FeedRows.SOURCE


def test_a_loader_that_workers_do_not_help_is_measured_without_waits():
    small = loop(batch(ms=1, line=9, workers=0, nbytes=256).containing(prepare("row", 0.9)), frameworks=TORCH)
    diagnosis = diagnose(small)
    assert choose_emulation(diagnosis.view, diagnosis.main).kind is EmulationKind.RESIDENT


@pytest.mark.parametrize("fault", ["an eager step", "shapes that keep changing"])
def test_a_cure_that_cannot_be_emulated_has_a_reason_instead(fault):
    assert isinstance(emulation_for(fault), str)


def test_the_emulation_of_a_narrow_dtype_measures_the_cure_without_prefetch():
    finding = diagnose(FAULTS["doubles that arrive as floats"][1]).main
    for cures in (finding.cures, finding.cures[::-1]):
        cure = _emulated_cure(replace(finding, cures=cures), EmulationKind.NARROW)
        assert cure.title == "convert the array once"


class ProcessThatIgnoresSignals:
    """Replaces `Popen` for a process that ignores signals. Each wait raises the next of `errors`."""

    def __init__(self, *errors):
        self._errors, self.is_killed = [*errors], False
        self.handlers = []  # of SIGTERM, in each wait

    def wait(self, seconds=None):
        if not self.is_killed:
            self.handlers.append(signal.getsignal(signal.SIGTERM))
            raise self._errors.pop(0)

    def terminate(self):
        pass

    def kill(self):
        self.is_killed = True


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([KeyboardInterrupt(), KeyboardInterrupt()], "was killed after a second signal"),
        ([subprocess.TimeoutExpired("python", 1.0)], "was killed because it took too long"),
        ([KeyboardInterrupt(), subprocess.TimeoutExpired("python", 1.0)], "was killed because it took too long"),
        ([SigtermReceived(), SigtermReceived()], "was killed after a second signal"),
        ([SigtermReceived(), KeyboardInterrupt()], "was killed after a second signal"),
        ([SigtermReceived(), *[subprocess.TimeoutExpired("python", 1.0)] * 2], "was killed because it took too long"),
    ],
)
def test_a_killed_run_has_a_reason(errors, reason):
    process = ProcessThatIgnoresSignals(*errors)
    assert subprocess_run._wait(process, 1.0) == reason
    assert process.is_killed


def test_a_second_sigterm_does_not_end_the_doctor_before_the_script():
    process = ProcessThatIgnoresSignals(SigtermReceived(), *[subprocess.TimeoutExpired("python", 1.0)] * 2)
    subprocess_run._wait(process, 1.0)
    assert len(process.handlers) == 3
    assert signal.SIG_DFL not in process.handlers


def test_a_run_is_killed_after_any_error():
    process = ProcessThatIgnoresSignals(MemoryError())
    with pytest.raises(MemoryError):
        subprocess_run._wait(process, 1.0)
    assert process.is_killed


def test_an_emulation_is_equal_after_a_conversion_to_json_and_back():
    emulation = Emulation(EmulationKind.DEFER, "train.py", 7, 100)
    assert Emulation.from_json(json.loads(json.dumps(emulation.to_json()))) == emulation


def phase_after(detector, count):
    """Return the phase after `count` steps of one millisecond."""
    for number in range(1, count + 1):
        detector.on_site(("step", "optimizer.step", 3), number, number * 1_000_000)
    return detector.phase


def test_the_detector_waits_for_the_device_after_each_block_of_steps():
    waits = []
    detector = TimedStepDetector(warm_up=2, wait=lambda: waits.append(1), steps=5, untraced_steps=3 * BLOCK_STEPS)
    assert phase_after(detector, 2 + 5 + 1 + 3 * BLOCK_STEPS) == "done"
    assert (len(waits), len(detector.step_ends)) == (4, 3 * BLOCK_STEPS + 1)


def test_each_step_gets_the_mean_time_of_its_block():
    detector = TimedStepDetector(warm_up=2, untraced_steps=BLOCK_STEPS)
    phase_after(detector, 2 + 5 + 1 + BLOCK_STEPS)
    lengths = [after - before for before, after in zip(detector.step_ends, detector.step_ends[1:], strict=False)]
    assert max(lengths) - min(lengths) <= 1


def test_a_script_that_ends_early_has_its_last_block_timed():
    detector = TimedStepDetector(warm_up=2)
    assert phase_after(detector, 15) == "timing"
    detector.finish(16_000_000)
    assert (detector.phase, len(detector.step_ends)) == ("done", 8)


def test_only_the_known_call_ends_a_step():
    detector = TimedStepDetector(warm_up=2, is_end=lambda site: site[0] == "run")
    assert phase_after(detector, 100) == "profiling"


def verified(**fields):
    return replace(samples.ordinary(), verification=Verification(**fields))


MEASURED = {"kind": EmulationKind.REMEMBER, "predicted": (0.005, 0.0056), "measured": 0.0052}
FAILED = {"kind": EmulationKind.DEFER, "trouble": "the run with the emulated cure ended too early: ValueError: no"}


def test_the_report_shows_the_measured_step_and_calls_the_results_wrong():
    text = render(verified(**MEASURED)).plain
    assert "Measured with the cure emulated: 5.20 ms per step" in text
    assert "The results of that run are wrong" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("measured", "contradicts"), [(0.0052, False), (60.0, True)])
def test_the_report_says_if_the_measurement_contradicts_the_prediction(measured, contradicts):
    text = " ".join(render(verified(**MEASURED | {"measured": measured})).plain.split())
    assert ("This contradicts the prediction" in text) is contradicts


def test_the_report_says_why_a_verification_failed():
    assert "No cure was measured: the run with the emulated cure ended too early: ValueError: no." in " ".join(
        render(verified(**FAILED)).plain.split()
    )


def test_without_verify_the_reports_contain_no_verification():
    assert "emulated:" not in render(samples.ordinary()).plain
    assert to_document(samples.ordinary())["verification"] is None


@pytest.mark.parametrize("fields", [MEASURED, FAILED, {"trouble": "it is not emulated"}])
def test_the_document_and_the_page_contain_the_verification(fields):
    document = to_document(verified(**fields))
    jsonschema.validate(document, SCHEMA)
    assert document["verification"]["step_seconds_measured"] == fields.get("measured")
    page = render_page(verified(**fields))
    assert ("Measured with the cure emulated: 5.20 ms per step" in page) is ("measured" in fields)


def test_the_second_run_prints_nothing(environment, tmp_path):
    script = tmp_path / "train.py"
    script.write_text((DOCTOR / "scripts" / "cupy" / "repeated_upload.py").read_text() + "print('finished')\n")
    done = verify("--json", "a.json", "--capture", "a.gz", script, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("finished"), done.stdout.count("Measured with the cure emulated: ")) == (1, 1)
    assert "running the script again" in done.stderr
    verification = json.loads((tmp_path / "a.json").read_text())["verification"]
    assert (verification["emulated"], verification["trouble"]) == (EmulationKind.REMEMBER.description, None)
    assert verification["step_seconds_measured"] > 0
    assert "emulated" not in Capture.load(tmp_path / "a.gz").facts


def test_a_failing_second_run_is_reported_and_the_command_succeeds(environment, tmp_path):
    (tmp_path / "train.py").write_text(STALE_VALUES_FAIL)
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ended too early: ValueError" in " ".join(done.stdout.split())


def test_a_cure_whose_code_fits_is_applied_and_measured(environment, tmp_path):
    done = verify("--json", "a.json", DOCTOR / "scripts" / "cupy" / "rebuilt.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    verification = json.loads((tmp_path / "a.json").read_text())["verification"]
    assert verification["emulated"] == EmulationKind.APPLIED.description
    assert verification["step_seconds_measured"] > 0
    assert "Measured with the cure applied: " in done.stdout
    assert "results of that run are wrong" not in done.stdout


def test_a_healthy_script_is_not_run_again(environment, tmp_path):
    script = DOCTOR / "scripts" / "cupy" / "repeated_upload_healthy.py"
    done = verify(script, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "there is no finding with a cure" in " ".join(done.stdout.split())
    assert "running the script again" not in done.stderr


def test_the_report_of_a_script_without_a_loop_asks_for_more_steps(environment, tmp_path):
    (tmp_path / "train.py").write_text(NO_LOOP)
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Let the script run for more steps." in " ".join(done.stdout.split())


def test_if_the_first_run_fails_the_command_fails(environment, tmp_path):
    (tmp_path / "train.py").write_text("raise ValueError('no such column')\n")
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "no such column" in done.stderr


def test_a_capture_cannot_be_run_again(environment, tmp_path):
    samples.ordinary().view.capture.save(tmp_path / "run.gz")
    done = verify("run.gz", environment=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "run.gz is a capture" in " ".join(done.stderr.split())
