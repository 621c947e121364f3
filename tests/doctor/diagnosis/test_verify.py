"""Cures tried by emulation: what it does in each framework, which one belongs to a finding, and what is told of it."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest
from tests.doctor.report import report_samples as samples
from tests.doctor.report.test_document import SCHEMA
from tests.doctor.rules.rule_faults import FAULTS
from tests.support.paths import DOCTOR, ROOT

from forebay.doctor.diagnosis.diagnose import judge
from forebay.doctor.diagnosis.emulations import emulation_of
from forebay.doctor.emulate.rerun import BLOCK_STEPS, TimedStepping
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Emulation, Way
from forebay.doctor.model.verification import Verification
from forebay.doctor.report.document import document_of
from forebay.doctor.report.html import page
from forebay.doctor.report.terminal import render

pytestmark = pytest.mark.timeout(600)  # frameworks are imported, twice in some
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "NO_COLOR": "1"}
SETTINGS |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "COLUMNS": "80"}
STALE_VALUES_FAIL = """
import cupy
total, before = cupy.ones(1).sum(), 0.0
for _ in range(60):
    total = total + 1.0
    value = float(total)
    if value <= before:
        raise ValueError("it does not grow")
    before = value
"""
NO_LOOP = """
import cupy
cupy.asarray([1.0])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """With a stand-in for CuPy, in a folder by whose name it is no code of the user's."""
    libraries = tmp_path_factory.mktemp("libraries") / "site-packages"
    libraries.symlink_to(DOCTOR / "stand_in")
    return os.environ | SETTINGS | {"PYTHONPATH": str(libraries)}


def run(*arguments, environment, cwd):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=500, check=False, errors="replace"
    )


def verify(*arguments, environment, cwd):
    return run("-m", "forebay", "doctor", "--verify", *arguments, environment=environment, cwd=cwd)


@pytest.mark.parametrize("framework", ["cupy", "jax", "tensorflow", "torch"])
def test_every_case_holds(environment, framework):
    cases = DOCTOR / "emulate" / f"{framework}_cases.py"
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", cases, environment=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def emulation_for(fault):
    rule, capture, _ = FAULTS[fault]
    verdict = judge(capture)
    return emulation_of(verdict.case, next(finding for finding in verdict.findings if finding.rule == rule))


@pytest.mark.parametrize(
    ("fault", "way", "line", "every"),
    [
        ("the same array every step", Way.REMEMBER, 3, 0),
        ("fresh arrays converted", Way.REUSE, 5, 0),
        ("a hundred little uploads", Way.REUSE, 20, 100),
        ("a large copy out of pageable memory", Way.LOCK, 6, 0),
        ("a loader that cannot keep up", Way.RESIDENT, 9, 0),
        ("a wait asked for", Way.SKIP, 27, 100),
        ("doubles that arrive as floats", Way.NARROW, 21, 0),
    ],
)
def test_a_finding_has_its_emulation(fault, way, line, every):
    assert emulation_for(fault) == Emulation(way, "train.py", line, every)


def test_a_copy_that_is_waited_for_is_made_ahead():
    finding = replace(samples.UPLOAD, rule="copy_not_overlapped")
    assert emulation_of(samples.ordinary().case, finding) == Emulation(Way.AHEAD, "/home/me/project/train.py", 34)


@pytest.mark.parametrize("fault", ["an eager step", "shapes that keep changing"])
def test_a_cure_that_cannot_be_emulated_says_why(fault):
    assert isinstance(emulation_for(fault), str)


def test_an_emulation_is_written_and_read():
    emulation = Emulation(Way.DEFER, "train.py", 7, 100)
    assert Emulation.from_json(json.loads(json.dumps(emulation.to_json()))) == emulation


def walked(stepping, count):
    """The phase after each of so many steps of a millisecond."""
    for number in range(1, count + 1):
        stepping.note(("step", "optimizer.step", 3), number, number * 1_000_000)
    return stepping.phase


def test_the_device_is_waited_for_after_each_block_of_steps():
    waits = []
    stepping = TimedStepping(warm_up=2, wait=lambda: waits.append(1), steps=5, untraced_steps=3 * BLOCK_STEPS)
    assert walked(stepping, 2 + 5 + 1 + 3 * BLOCK_STEPS) == "over"
    assert (len(waits), len(stepping.marks)) == (4, 3 * BLOCK_STEPS + 1)


def test_steps_of_a_block_take_what_it_took_for_each():
    stepping = TimedStepping(warm_up=2, untraced_steps=BLOCK_STEPS)
    walked(stepping, 2 + 5 + 1 + BLOCK_STEPS)
    lengths = [after - before for before, after in zip(stepping.marks, stepping.marks[1:], strict=False)]
    assert max(lengths) - min(lengths) <= 1


def test_a_script_that_ends_early_has_its_last_block_timed():
    stepping = TimedStepping(warm_up=2)
    assert walked(stepping, 15) == "timing"
    stepping.finish(16_000_000)
    assert (stepping.phase, len(stepping.marks)) == ("over", 8)


def test_only_the_line_that_ended_steps_before_ends_them_now():
    stepping = TimedStepping(warm_up=2, is_end=lambda site: site[0] == "run")
    assert walked(stepping, 100) == "watching"


def verified(**told):
    return replace(samples.ordinary(), verification=Verification(**told))


MEASURED = {"way": Way.REMEMBER, "predicted": (0.005, 0.0056), "measured": 0.0052}
FAILED = {"way": Way.DEFER, "trouble": "the run with the cure emulated ended too early: ValueError: no"}


def test_what_was_measured_stands_beside_what_was_predicted():
    text = render(verified(**MEASURED)).plain
    assert "Tried: 5.20 ms a step (5.00 to 5.60 ms predicted, 10.9 ms now)." in text
    assert "What that run computed is stale" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_why_nothing_was_measured_is_told():
    assert "The cure was not tried: the run with the cure emulated ended too early: ValueError: no." in " ".join(
        render(verified(**FAILED)).plain.split()
    )


def test_without_being_asked_nothing_is_told():
    assert "ried" not in render(samples.ordinary()).plain
    assert document_of(samples.ordinary())["verification"] is None


@pytest.mark.parametrize("told", [MEASURED, FAILED, {"trouble": "it is not emulated"}])
def test_the_document_and_the_page_have_it(told):
    document = document_of(verified(**told))
    jsonschema.validate(document, SCHEMA)
    assert document["verification"]["step_seconds_measured"] == told.get("measured")
    assert ("Tried: 5.20 ms a step" in page(verified(**told))) is ("measured" in told)


def test_a_script_is_run_again_and_heard_once(environment, tmp_path):
    script = tmp_path / "train.py"
    script.write_text((DOCTOR / "scripts" / "cupy" / "repeated_upload.py").read_text() + "print('heard')\n")
    done = verify("--json", "a.json", "--capture", "a.gz", script, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("heard"), done.stdout.count("Tried: ")) == (1, 1)
    assert "running the script again" in done.stderr
    told = json.loads((tmp_path / "a.json").read_text())["verification"]
    assert (told["emulated"], told["trouble"]) == (Way.REMEMBER.in_words, None)
    assert told["step_seconds_measured"] > 0
    assert "emulated" not in Capture.load(tmp_path / "a.gz").facts


def test_a_second_run_that_fails_is_told_and_is_no_failure(environment, tmp_path):
    (tmp_path / "train.py").write_text(STALE_VALUES_FAIL)
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ended too early: ValueError: it does not grow" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("rebuilt", "this cure is not emulated, because its cure is a change of the script's own code"),
        ("repeated_upload_healthy", "there is no finding whose cure could be tried"),
    ],
)
def test_what_cannot_be_tried_is_said_plainly(environment, tmp_path, script, why):
    done = verify(DOCTOR / "scripts" / "cupy" / f"{script}.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert why in " ".join(done.stdout.split())
    assert "running the script again" not in done.stderr


def test_a_script_without_a_loop_is_not_run_again(environment, tmp_path):
    (tmp_path / "train.py").write_text(NO_LOOP)
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "No loop was found" in done.stdout


def test_a_script_that_fails_by_itself_gives_its_exit_code(environment, tmp_path):
    (tmp_path / "train.py").write_text("raise ValueError('no such column')\n")
    done = verify("train.py", environment=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "no such column" in done.stderr


def test_a_capture_cannot_be_run_again(environment, tmp_path):
    samples.ordinary().case.capture.save(tmp_path / "run.gz")
    done = verify("run.gz", environment=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "run.gz is a capture" in " ".join(done.stderr.split())
