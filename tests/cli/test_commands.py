"""The commands with real files, and their errors.

Tests of how output is written (width, closed pipe, full disk) start processes.
"""

import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.support.run_python import TERMINAL, run_python

from forebay.cli import demo
from forebay.cli.main import main


def forebay(*arguments):
    return run_python("-m", "forebay", *arguments, seconds=240, **TERMINAL)  # the demo imports a framework twice


class Done(NamedTuple):
    returncode: int | str | None
    stdout: str
    stderr: str


def run_here(*arguments, cwd="."):
    """Run a command in this process, ten times as fast as in a new process."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), chdir(cwd):
        patch.setenv("COLUMNS", "80")
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros((5000, 20), np.float32))
    return tmp_path / "data.npy"


def test_demo_fits_into_80_columns():
    done = forebay("demo")
    assert done.returncode == 0
    assert "forebay, from a mapped .npy" in done.stdout
    assert "Why" in done.stdout
    assert "A feed to " in done.stdout
    assert "forebay doctor  train.py" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_demo_without_a_framework_says_what_to_install(monkeypatch):
    monkeypatch.setattr(demo, "find_framework", lambda: None)
    monkeypatch.setattr(demo, "_measure", lambda data, path: ({"a loader": 1.0}, []))
    done = run_here("demo")
    words = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "to feed one and to profile a script, the demo needs torch, jax or tensorflow" in words
    assert "Run pip install torch, then run forebay demo again." in words


@pytest.mark.long
def test_demo_json_contains_the_speeds():
    document = json.loads(forebay("demo", "--json").stdout)
    assert document["schema_version"] == 1
    assert all(speed > 0 for speed in document["rows_per_second"].values())
    assert document["feed"]["rows_per_second"] > 0
    assert "train.py" in document["doctor_report"]


def test_plan_shows_the_batches_a_reason_and_the_speed(data):
    done = run_here("plan", str(data), "--batch", "64")
    assert done.returncode == 0
    assert "79 batches of 64 rows: array float32[20]" in done.stdout
    assert "any row may come anywhere" in done.stdout
    assert "rows/s" in done.stdout


def test_plan_json_contains_batches_fields_and_decisions(data):
    document = json.loads(run_here("plan", str(data), "--batch", "64", "--json").stdout)
    assert document["batches"] == 79
    assert document["fields"] == {"array": "float32[20]"}
    assert {made["name"] for made in document["choices"]} >= {"order", "threads", "group", "slots", "memory"}


def test_plan_of_raw_files_uses_the_given_shape_and_dtype(tmp_path):
    np.zeros((100, 3), "u1").tofile(tmp_path / "raw.bin")
    done = run_here("plan", str(tmp_path / "raw.bin"), "--batch", "10", "--shape", "3", "--dtype", "uint8")
    assert "10 batches of 10 rows: array uint8[3]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "nothing*.npy", "--batch", "8"], "matches nothing"),
        (["plan", "missing.npy", "--batch", "8"], "missing.npy"),
        (["plan", "DATA", "--batch", "0"], "batch(0): pass a whole number"),
        (["plan", "DATA", "--batch", "8", "--to", "theano"], "cannot feed 'theano'"),
        (["plan", "DATA", "--batch", "8", "--host-bytes", "1KB"], "too small"),
    ],
)
def test_a_mistake_gives_one_message_and_exit_code_2(data, arguments, message):
    done = run_here(*(str(data) if word == "DATA" else word for word in arguments), cwd=data.parent)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["paln"], ["plan"], ["plan", "x.npy"]])
def test_a_wrong_command_line_shows_the_usage(arguments):
    done = run_here(*arguments)
    assert done.returncode == 2
    assert "usage: forebay" in done.stderr


def test_info_contains_machine_and_versions():
    document = json.loads(run_here("info", "--json").stdout)
    assert document["machine"]["cores"] >= 1
    assert document["installed"]["numpy"] == np.__version__
    assert "numpy" in run_here("info").stdout
    assert set(document["compiled"]) == {"buffers.c", "gather_rows.c", "number_rows.c", "resize_pixels.c"}


def test_a_closed_pipe_is_no_error(data):
    command = f"{sys.executable} -m forebay info | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr


def test_output_to_a_full_disk_fails_with_a_message():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", "info", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_full_disk_does_not_lose_bench_results():
    chosen = ["--case", "handoff", "--contender", "torch.from_numpy"]
    done = forebay("bench", "--quick", "--repeats", "1", *chosen, "--save", "/dev/full")
    assert done.returncode == 2
    assert "torch.from_numpy" in done.stdout
    assert "No space left on device" in done.stderr


def test_without_arguments_the_help_is_printed():
    done = run_here()
    assert (done.returncode, done.stderr) == (0, "")
    assert "doctor" in done.stdout
    assert "usage: forebay" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "--htlm", "r.html", "t.py"], "forebay doctor: error: unknown option --htlm. Did you mean --html?"),
        (["bench", "--repeat-it=3"], "forebay bench: error: unknown option --repeat-it. Did you mean --repeats?"),
        (["demo", "x"], "forebay demo: error: unknown argument x.\n"),
        (["doctor", "--epochs", "1", "t.py"], "forebay doctor: error: unknown option --epochs.\n"),
        (["docter", "t.py"], "forebay: error: there is no command 'docter'. Did you mean doctor?"),
    ],
)
def test_an_unknown_option_is_named_with_the_most_similar_one(arguments, message):
    done = run_here(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
