"""The command `forebay doctor` in real processes with real files, and its errors."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from tests.compat.commands import forebay_each
from tests.doctor.report import report_samples as samples
from tests.doctor.report.test_document import SCHEMA
from tests.doctor.report.trace_reader import read_trace
from tests.support.paths import DOCTOR
from tests.support.run_python import TERMINAL, run_python

COMMAND = [sys.executable, "-m", "forebay", "doctor"]


def doctor(*arguments, cwd, **settings):
    return run_python("-m", "forebay", "doctor", *arguments, cwd=cwd, seconds=60, **TERMINAL | settings)


@pytest.fixture
def folder(tmp_path):
    return with_files(tmp_path)


def with_files(tmp_path):
    """Write a capture, and scripts that end, raise, call `sys.exit`, or change the working directory."""
    samples.ordinary().view.capture.save(tmp_path / "run.gz")
    (tmp_path / "train.py").write_text("import sys\nprint('trained with', *sys.argv[1:], end='')\n")
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "raises.py").write_text("raise ValueError('no such column')\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "moves.py").write_text(
        "import os, sys\nos.chdir('/')\nsys.stdout = open(os.devnull, 'w')\nprint('lost')\n"
    )
    return tmp_path


def test_a_capture_gives_every_kind_of_report(folder):
    outputs = ["--html", "a.html", "--json", "a.json", "--trace", "a.pftrace", "--capture", "b.gz"]
    done = doctor(*outputs, "run.gz", cwd=folder)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Step time 10.9 ms" in done.stdout
    assert done.stderr.count("wrote") == 4
    jsonschema.validate(json.loads((folder / "a.json").read_text()), SCHEMA)
    assert (folder / "a.html").read_text().startswith("<!doctype html>")
    assert len(read_trace(folder / "a.pftrace").slices) > 100
    assert doctor("b.gz", cwd=folder).stdout == done.stdout


LONG_SCRIPT = """
import json, os, torch
weights = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
seen = None
for step in range(400):
    (weights - 1).square().sum().backward()
    optimizer.step()
    if seen is None and os.path.exists("a.json"):
        seen = json.load(open("a.json"))["ended"]
print("the report says:", seen)
"""


def test_the_report_is_written_while_the_script_continues(folder):
    (folder / "long.py").write_text(LONG_SCRIPT)
    done = doctor("--json", "a.json", "long.py", cwd=folder)
    assert "the report says: still running" in done.stdout, done.stderr
    assert json.loads((folder / "a.json").read_text())["ended"] == "done"
    messages = [line for line in done.stderr.splitlines() if line.startswith("forebay doctor: ")]
    assert [line.split()[2] for line in messages] == ["profiling", "enough", "wrote"]


def test_options_after_the_script_go_to_the_script_with_a_warning(folder):
    done = doctor("train.py", "--html", "a.html", cwd=folder)
    assert "trained with --html a.html" in done.stdout
    assert "forebay doctor: --html follows the name of the script" in done.stderr
    assert not (folder / "a.html").exists()


SECRETS = {"data": "DATA-4242", "argument": "ARGV-99", "source": "SOURCE-7", "folder": "secret-folder"}
OUTPUTS = ["--html", "a.html", "--json", "a.json", "--trace", "a.pftrace", "--capture", "a.gz"]


FAILING_LOOP = """
import cupy
total = cupy.ones(1).sum()
for _ in range(40):
    total = total + 1.0
    value = float(total)  # SOURCE-7
raise ValueError("DATA-4242")
"""


def exposed_secrets(folder, *options):
    """Run a script that ends with an exception, and return the secrets in its reports."""
    (folder / "secret-folder").mkdir()
    script = folder / "secret-folder" / "train.py"
    script.write_text(FAILING_LOOP)
    (folder / "site-packages").symlink_to(DOCTOR / "stand_in")  # the doctor treats this folder as library code
    settings = {"PYTHONPATH": str(folder / "site-packages"), "XLA_FLAGS": f"--xla_dump_to={script.parent}/dump"}
    done = doctor(*OUTPUTS, *options, script, "--password=ARGV-99", cwd=folder, **settings)
    assert done.stderr.count("wrote") == 4, done.stderr
    reports = [(folder / name).read_bytes() for name in ("a.html", "a.json", "a.pftrace")]
    reports += [gzip.decompress((folder / "a.gz").read_bytes()), done.stdout.encode()]
    return {name for name, secret in SECRETS.items() if any(secret.encode() in report for report in reports)}


def test_reports_contain_neither_arguments_nor_error_texts(folder):
    assert exposed_secrets(folder) == {"source", "folder"}


def test_reports_contain_arguments_and_error_texts_on_request(folder):
    assert exposed_secrets(folder, "--with-arguments") == {"argument", "data", "source", "folder"}


def test_the_option_no_source_also_removes_folders_from_reports(folder):
    assert exposed_secrets(folder, "--no-source") == set()


def test_the_option_no_source_removes_source_text_from_all_files(folder):
    doctor("--no-source", "--html", "a.html", "--json", "a.json", "--trace", "a.pftrace", "run.gz", cwd=folder)
    written = b"".join((folder / name).read_bytes() for name in ("a.html", "a.json", "a.pftrace"))
    assert b"losses.append" not in written
    assert b"/home/me" not in written


def test_no_source_and_with_arguments_exclude_each_other(folder):
    assert "not allowed with" in doctor("--no-source", "--with-arguments", "train.py", cwd=folder).stderr


def test_a_script_keeps_its_arguments_and_its_output(folder):
    done = doctor("train.py", "--html", "x", "--lr", "3", cwd=folder)
    assert done.stdout.startswith("trained with --html x --lr 3\n")
    assert "imported no framework" in done.stdout
    assert done.returncode == 0
    assert not (folder / "x").exists()


def test_a_module_can_be_run(folder):
    assert "trained with 1" in doctor("-m", "train", "1", cwd=folder).stdout


def test_the_exception_of_a_script_is_shown_and_reported(folder):
    done = doctor("raises.py", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.endswith("ValueError: no such column\n")
    terminal_text = " ".join(done.stdout.split())
    assert "The script ended with ValueError. This report" in terminal_text
    assert "The script had not imported a framework yet." in terminal_text
    assert "Give the doctor the script that trains" not in terminal_text


def test_a_script_that_exits_is_reported(folder):
    done = doctor("leaves.py", cwd=folder)
    assert done.returncode == 2
    assert "The script ended with exit 3" in done.stdout


def test_a_script_may_change_its_folder_and_redirect_its_output(folder):
    done = doctor("--json", "a.json", "moves.py", cwd=folder)
    assert "forebay doctor  moves.py" in done.stdout
    assert not done.stdout.startswith("1")
    assert json.loads((folder / "a.json").read_text())["script"] == "moves.py"


def test_a_script_may_use_watch_itself(folder):
    (folder / "watches.py").write_text(
        "from forebay.doctor import watch\nwith watch() as seen:\n    pass\nprint(seen.capture.ended)\n"
    )
    done = doctor("watches.py", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("done\n")
    assert "watch() reports everything that `forebay doctor` has recorded so far" in " ".join(done.stdout.split())


def test_an_ascii_terminal_still_gets_the_report(folder):
    done = doctor("run.gz", cwd=folder, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "host to device" in done.stdout


def test_an_interrupted_script_is_reported(folder):
    # Short sleeps: as in plain Python, a Ctrl-C just before a system call does not interrupt the call.
    (folder / "long.py").write_text("import time\nprint('begun', flush=True)\nwhile True:\n    time.sleep(0.1)\n")
    with subprocess.Popen(
        [*COMMAND, "long.py"], cwd=folder, env=os.environ | TERMINAL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        printed, _ = running.communicate(timeout=30)
    assert "The script was interrupted" in printed
    assert running.returncode == 0


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_a_script_that_is_terminated_is_reported(folder, options):
    (folder / "long.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(50)\n")
    with subprocess.Popen(
        [*COMMAND, *options, "long.py"],
        cwd=folder,
        env=os.environ | TERMINAL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout.readline() == "begun\n"
        for _ in range(3):  # as `timeout` does: to the process and to its group
            os.killpg(running.pid, signal.SIGTERM)
            time.sleep(0.01)
        printed, _ = running.communicate(timeout=30)
    assert "The script was terminated" in printed
    assert running.returncode == 2


def test_a_script_whose_name_is_not_unicode_is_reported(folder):
    name = os.fsdecode(b"train\xff.py")
    (folder / name).write_text("print('trained')\n")
    done = doctor("--html", "a.html", "--trace", "a.pftrace", "--json", "a.json", name, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("wrote") == 3
    assert "No training loop was found" in done.stdout


def test_a_script_may_close_its_output(folder):
    (folder / "closes.py").write_text("import sys\nsys.stdout.close()\n")
    assert "No training loop was found" in doctor("closes.py", cwd=folder).stdout


MISTAKES = [
    ([], "nothing to run. Pass a script"),
    (["tran.py"], "there is no script 'tran.py'. Did you mean train.py?"),
    (["nothing.txt"], "Pass its path, or -m"),
    (["."], ". is a directory. Pass the script in it"),
    (["report.json"], "report.json is a JSON file, not a script. Compare such files with --compare A B."),
    (["-m", "no_such_module"], "there is no module 'no_such_module'"),
    (["--html", "missing/a.html", "train.py"], "there is no directory missing"),
    (["--json", ".", "train.py"], "--json . is a directory"),
    (["--html", "./train.py", "train.py"], "train.py would overwrite the input"),
    (["run.gz", "--html", "a.html"], "Put '--html a.html' before it"),
    (["--compare", "run.gz", "missing.json"], "cannot read missing.json: No such file or directory. Write a document"),
    (["--compare", "run.gz", "train.py"], "train.py is no JSON document of forebay doctor"),
    (["--html", "a.html", "--compare", "run.gz", "run.gz"], "Omit --html"),
    (["--compare", "run.gz", "run.gz", "train.py"], "Omit train.py"),
    (["--steps", "2", "train.py"], "'2' is not a whole number of at least 4"),
    (["--warm-up", "x", "train.py"], "'x' is not a whole number of at least 1"),
]


@pytest.fixture(scope="module")
def mistaken_runs(tmp_path_factory):
    """Run the command with every mistake in one process.

    A new process takes a second to start.
    """
    folder = with_files(tmp_path_factory.mktemp("mistakes"))
    return forebay_each([["doctor", *arguments] for arguments, _ in MISTAKES], cwd=folder)


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=[message for _, message in MISTAKES])
def test_a_mistake_is_reported_with_a_hint_and_exit_code_2(mistaken_runs, number):
    done, message = mistaken_runs[number], MISTAKES[number][1]
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "trained" not in done.stdout


def test_a_full_disk_affects_neither_the_terminal_nor_the_other_files(folder):
    done = doctor("--json", "/dev/full", "--html", "a.html", "run.gz", cwd=folder)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Step time 10.9 ms" in done.stdout
    assert (folder / "a.html").exists()


def test_two_runs_are_compared_by_document_or_capture(folder):
    samples.cured().view.capture.save(folder / "cured.gz")
    doctor("--json", "cured.json", "cured.gz", cwd=folder)
    done = doctor("--compare", "run.gz", "cured.json", cwd=folder)
    assert done.returncode == 0
    assert "A step takes 5.20 ms instead of 10.9 ms: 2.10 x as fast." in done.stdout


@pytest.mark.parametrize(("fail_on", "code"), [("never", 0), ("moderate", 1), ("severe", 1)])
def test_a_slower_run_fails_with_fail_on(folder, fail_on, code):
    samples.cured().view.capture.save(folder / "cured.gz")
    assert doctor("--fail-on", fail_on, "--compare", "cured.gz", "run.gz", cwd=folder).returncode == code


def test_the_help_has_examples_and_fits_80_columns():
    done = doctor("--help", cwd=".")
    assert "forebay doctor --compare before.json now.json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
