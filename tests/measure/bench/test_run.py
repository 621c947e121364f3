"""The bench from end to end, with real processes."""

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.measure.bench import contender_process, run
from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.contenders import CONTENDERS, Contender
from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Entry, ResultColumn, select_cases
from forebay.measure.bench.run import run_cases

QUICKEST = RunSettings(seconds=0.02, warm_up_seconds=0.01, repeats=2)
FLOOR = Entry("np.take loop", "floor")
LOOP = Entry("loop into an array", "row_loop")


@pytest.fixture
def first_batch_case(tiny_case):
    """Return a function that makes a tiny case.

    Its meter needs no framework, so processes start quickly.
    """
    columns = (ResultColumn("first", "ms", "first batch"),)
    return lambda *entries: replace(tiny_case(*entries), meter="first_batch", columns=columns, targets=())


@pytest.fixture
def contender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that registers a contender with this code."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    def register(name: str, code: str, *, requires: tuple[str, ...] = (), install: str = "") -> Entry:
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.setitem(CONTENDERS, name, Contender(name, f"{name}:contender", requires, install))
        return Entry(name, name)

    return register


def test_the_baseline_and_a_contender_are_measured_in_every_round(tiny_case):
    (result,) = run_cases([tiny_case(FLOOR, LOOP)], QUICKEST).cases
    assert [row.status for row in result.rows] == ["measured", "measured"]
    assert {name: len(values) for name, values in result.rows[1].samples.items()} == {"idle": 2, "busy": 2, "step": 2}
    assert result.ratio("loop into an array", "np.take loop", "idle") > 0


def test_the_cpu_steal_share_is_measured_before_every_round(first_batch_case, monkeypatch):
    monkeypatch.setattr(run, "cpu_steal_share", iter([0.25, 0.75]).__next__)
    (result,) = run_cases([first_batch_case(FLOOR)], QUICKEST).cases
    assert result.cpu_steal_share == 0.5


def test_a_contender_that_is_not_installed_says_how_to_install_it(first_batch_case, contender):
    absent = contender("absent", "", requires=("no_such_framework",), install="pip install no-such-framework")
    (result,) = run_cases([first_batch_case(FLOOR, absent)], QUICKEST).cases
    assert [(row.status, row.reason) for row in result.rows] == [
        ("measured", ""),
        ("not installed", "pip install no-such-framework"),
    ]


def test_a_contender_that_raises_is_shown_with_its_reason_and_the_others_continue(first_batch_case, contender):
    raising = contender("raising", "def contender(work): raise ValueError('no batches today')")
    (result,) = run_cases([first_batch_case(raising, FLOOR)], QUICKEST).cases
    assert (result.rows[0].status, result.rows[0].reason) == ("failed", "ValueError: no batches today")
    assert result.rows[1].status == "measured"


def test_a_contender_whose_process_dies_is_shown_with_its_signal(first_batch_case, contender):
    code = "import os, sys\ndef contender(work):\n    print('out of luck', file=sys.stderr, flush=True)\n    os.abort()"
    (result,) = run_cases([first_batch_case(contender("dying", code), FLOOR)], QUICKEST).cases
    assert result.rows[0].status == "failed"
    assert "SIGABRT" in result.rows[0].reason
    assert result.rows[1].status == "measured"


def test_a_contender_that_closes_its_connection_but_does_not_end_is_killed(first_batch_case, contender, monkeypatch):
    monkeypatch.setattr(contender_process, "SECONDS_TO_END", 0.5)
    code = (
        "import threading, time\n"
        "def contender(work):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n    raise SystemExit(3)"
    )
    (result,) = run_cases([first_batch_case(contender("lingering", code), FLOOR)], QUICKEST).cases
    assert result.rows[0].status == "failed"
    assert "closed its connection and did not end" in result.rows[0].reason
    assert result.rows[1].status == "measured"


def test_child_processes_of_a_contender_that_died_are_killed(first_batch_case, contender, monkeypatch, tmp_path):
    monkeypatch.setattr(contender_process, "SECONDS_TO_END", 0.5)
    lock, survived = tmp_path / "lock", tmp_path / "survived"
    child_code = f"import time; time.sleep(20); open({str(survived)!r}, 'w')"
    code = (
        "import fcntl, os, subprocess, sys\ndef contender(work):\n"
        f"    lock = open({str(lock)!r}, 'w')\n    fcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"    subprocess.Popen([sys.executable, '-c', {child_code!r}], pass_fds=[lock.fileno()])\n    os.abort()"
    )
    run_cases([first_batch_case(contender("parent", code))], QUICKEST)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for the end of the child process, which shares the lock
    assert not survived.exists()


def test_a_contender_that_fails_during_a_round_loses_only_its_own_samples(tiny_case, contender):
    # The second epoch raises IndexError.
    code = "def contender(work):\n    epochs_left = [1]\n    return lambda: [0] * epochs_left.pop() * 3"
    (result,) = run_cases([tiny_case(FLOOR, contender("fading", code))], QUICKEST).cases
    assert result.rows[1].status == "failed"
    assert result.rows[1].samples == {}
    assert result.rows[0].status == "measured"


def test_a_contender_may_skip_what_it_cannot_do(first_batch_case, contender):
    code = "from forebay.measure.bench.model import Skip\ndef contender(work): raise Skip('only on Sundays')"
    (result,) = run_cases([first_batch_case(FLOOR, contender("skipping", code))], QUICKEST).cases
    assert (result.rows[1].status, result.rows[1].reason) == ("skipped", "only on Sundays")


def test_the_output_of_a_contender_is_ignored(first_batch_case, contender):
    code = "print('hello')\ndef contender(work): return lambda: [print('batch')] * 3"
    (result,) = run_cases([first_batch_case(FLOOR, contender("chatty", code))], QUICKEST).cases
    assert result.rows[1].status == "measured"


def test_an_entry_may_limit_its_processors_and_set_its_environment_and_backend(first_batch_case, contender):
    code = (
        "import os\nfrom forebay.measure.bench.model import Skip\n"
        "seen = len(os.sched_getaffinity(0)), os.environ['BENCH_TEST'], os.environ['KERAS_BACKEND']\n"
        "def contender(work): raise Skip(str(seen))"
    )
    options = {"cpus": 1, "environment": {"BENCH_TEST": "set"}, "backend": "jax"}
    entry = replace(contender("showing", code), options=options)
    (result,) = run_cases([first_batch_case(entry)], QUICKEST).cases
    assert result.rows[0].reason == "(1, 'set', 'jax')"


def test_a_contender_that_exceeds_the_timeout_fails(first_batch_case, contender):
    slow = contender("slow", "import time\ndef contender(work): time.sleep(600)")
    (result,) = run_cases([replace(first_batch_case(slow), timeout_seconds=1.0)], QUICKEST).cases
    assert (result.rows[0].status, result.rows[0].reason) == ("failed", "gave no answer in 1 s")


def test_a_submodule_of_a_package_that_is_not_installed_is_missing():
    assert Contender("absent", "absent", ("no_such_package.part", "json"), "").missing() == ("no_such_package.part",)


def test_without_a_gpu_entries_are_skipped(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (case,) = select_cases(GPU_CASES, case_names=["gpu-resident"], contenders=["index_select"])
    (result,) = run_cases([case], QUICKEST).cases
    assert [(row.status, row.reason) for row in result.rows] == [("skipped", "torch sees no GPU")]


def test_gpu_results_contain_the_name_of_the_gpu(first_batch_case, monkeypatch):
    monkeypatch.setattr(run, "gpu_facts", lambda: {"gpu": "A GPU", "cuda": "13.0"})
    monkeypatch.setattr(run, "gpu_package_versions", lambda: {"spdl-core": "0.8.0"})
    results = run_cases([first_batch_case(FLOOR)], QUICKEST, device="cuda")
    assert results.machine["gpu"] == "A GPU"
    assert results.versions["spdl-core"] == "0.8.0"
    assert "gpu" not in run_cases([first_batch_case(FLOOR)], QUICKEST).machine
