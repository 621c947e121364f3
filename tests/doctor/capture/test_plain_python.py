"""Under the doctor, a script has the same output and the same errors as in plain Python.

If the script fails, the exit code is that of the doctor.
"""

import re
import signal
import subprocess
import sys
import zipfile

import pytest
from tests.doctor.capture import plain_scripts as scripts
from tests.support.run_python import TERMINAL, run_python

from forebay.doctor.model.capture import Capture

DOCTOR = ["-m", "forebay", "doctor"]


def python(*arguments, cwd):
    return run_python(*arguments, cwd=cwd, seconds=120, **TERMINAL)


def contains_lines(report, lines):
    """Whether the report contains the lines in this order, perhaps with other lines between them."""
    remaining = iter(report.splitlines())
    return all(line in remaining for line in lines.splitlines())


def run_both_ways(*arguments, cwd):
    """Run a script in plain Python and under the doctor, compare its output, and return both processes."""
    plain, profiled = python(*arguments, cwd=cwd), python(*DOCTOR, *arguments, cwd=cwd)
    profiled.stderr = re.sub(r"^forebay doctor: profiling .*\n", "", profiled.stderr, flags=re.MULTILINE)
    assert contains_lines(profiled.stdout, plain.stdout), profiled.stdout
    return plain, profiled


@pytest.fixture
def write(tmp_path):
    def write_script(text, name="train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="latin-1")
        return name

    return write_script


@pytest.mark.parametrize("name", scripts.SUCCEED)
def test_a_script_that_succeeds_runs_as_in_plain_python(write, tmp_path, name):
    plain, profiled = run_both_ways(write(scripts.SUCCEED[name]), "--lr", "1", cwd=tmp_path)
    assert (plain.returncode, profiled.returncode) == (0, 0)
    assert profiled.stderr == plain.stderr


@pytest.mark.parametrize("name", scripts.FAIL)
def test_a_script_that_fails_prints_the_same_errors(write, tmp_path, name):
    plain, profiled = run_both_ways(write(scripts.FAIL[name]), cwd=tmp_path)
    assert plain.returncode not in (0, None)
    assert profiled.returncode == (0 if plain.returncode == -signal.SIGINT else 2)  # the exit codes of the doctor
    assert profiled.stderr == plain.stderr


@pytest.mark.parametrize("path", ["./train.py", "sub/../train.py", "linked.py", "sub/linked.py"])
def test_paths_of_a_script_are_those_of_plain_python(write, tmp_path, path):
    write(scripts.NAMES)
    write("", "sub/other.py")
    (tmp_path / "linked.py").symlink_to("train.py")
    (tmp_path / "sub" / "linked.py").symlink_to("../train.py")
    plain, profiled = run_both_ways(path, "--lr", "1", cwd=tmp_path)
    assert (plain.returncode, profiled.returncode) == (0, 0)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        *((module, text) for module in ("package.train", "train") for text in ("names", "spawn", "pickle at exit")),
        ("package", "names"),  # not "spawn": worker processes do not import the main module of a package
    ],
)
def test_a_module_runs_as_with_python_m(write, tmp_path, module, text):
    write("", "package/__init__.py")
    for name in ("package/train.py", "package/__main__.py", "train.py"):
        write(scripts.SUCCEED[text], name)
    plain, profiled = run_both_ways("-m", module, "x", cwd=tmp_path)
    assert (plain.returncode, profiled.returncode) == (0, 0)
    assert profiled.stderr == plain.stderr


@pytest.mark.parametrize("module", ["package.missing", "package", "package.broken"])
def test_a_module_that_fails_prints_the_same_errors(write, tmp_path, module):
    write("", "package/__init__.py")
    write("raise ValueError('row')", "package/broken.py")
    plain, profiled = run_both_ways("-m", module, cwd=tmp_path)
    assert (plain.returncode, profiled.returncode) == (1, 2)
    assert profiled.stderr == plain.stderr


def test_a_folder_and_a_zip_file_with_a_main_module_run(write, tmp_path):
    write(scripts.NAMES, "app/__main__.py")
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.write(tmp_path / "app" / "__main__.py", "__main__.py")
    for path in ("app", "app.pyz"):
        plain, profiled = run_both_ways(path, "x", cwd=tmp_path)
        assert (plain.returncode, profiled.returncode) == (0, 0)


def test_os_exit_ends_the_process_with_its_code(write, tmp_path):
    plain, profiled = run_both_ways(write("import os\nprint('first', flush=True)\nos._exit(7)\n"), cwd=tmp_path)
    assert (plain.returncode, profiled.returncode) == (7, 7)


@pytest.mark.parametrize("closing", ["os.close(1)", "os.closerange(0, 3)", "sys.stdout.close(); sys.stderr.close()"])
def test_reports_are_written_after_the_script_has_closed_its_streams(write, tmp_path, closing):
    opening = "taken = open('taken.txt', 'w')\n"  # this file gets the file descriptor of a closed stream
    path = write(f"import os, sys\n{closing}\n{opening}")
    outputs = [f"--{kind}={tmp_path / kind}" for kind in ("html", "json", "trace", "capture")]
    profiled = python(*DOCTOR, *outputs, path, cwd=tmp_path)
    assert profiled.returncode == 0
    assert "No training loop was found" in profiled.stdout
    assert all((tmp_path / kind).stat().st_size for kind in ("html", "json", "trace", "capture"))
    assert (tmp_path / "taken.txt").read_text() == ""


IGNORES_ERRORS = """
import time
print("begun", flush=True)
while True:
    try:
        time.sleep(100)
    except BaseException:
        pass
"""
WAITS_IN_C = """
import ctypes
mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
library.pthread_mutex_lock(mutex)
print("begun", flush=True)
library.pthread_mutex_lock(mutex)
"""
WAITS_FOR_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(100,)).start()
print("begun", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("text", [IGNORES_ERRORS, WAITS_IN_C, WAITS_FOR_A_THREAD])
def test_sigterm_ends_a_script_that_does_not_end_by_itself(write, tmp_path, text):
    with subprocess.Popen([sys.executable, *DOCTOR, write(text)], cwd=tmp_path, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) in (2, -signal.SIGTERM)


@pytest.mark.long
@pytest.mark.parametrize("text", [IGNORES_ERRORS, WAITS_IN_C])
def test_a_script_that_ignores_sigterm_is_reported_before_the_doctor_ends_it(write, tmp_path, text):
    command = [sys.executable, *DOCTOR, f"--capture={tmp_path / 'run.gz'}", write(text)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGTERM)
        printed, _ = running.communicate(timeout=90)
    assert running.returncode == 2
    assert b"The script was terminated" in printed
    assert Capture.load(tmp_path / "run.gz").ended == "terminated"


@pytest.mark.long
def test_a_forked_child_with_its_own_sigterm_handler_does_not_end_the_doctor(write, tmp_path):
    text = (
        "import os, signal, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
        "    time.sleep(100)\n"
        "time.sleep(0.5)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "os.waitpid(child, 0)\n"
        "time.sleep(6)\n"
        "print('finished')\n"
    )
    assert "finished" in python(*DOCTOR, write(text), cwd=tmp_path).stdout
