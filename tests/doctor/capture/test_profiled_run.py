"""Threads that outlive the script: the doctor waits for them only while they cause events."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from forebay.doctor.capture import profiled_run
from forebay.doctor.capture.profiled_run import RunRequest, profile_run, wait_for_threads

SCRIPT = """
import threading, time
def work():
    time.sleep(0.5)
    print("worked")
threading.Thread(target=work).start()
print("main is done")
"""


@pytest.fixture
def running_thread():
    """Start a thread that runs until the test ends."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    yield release
    release.set()
    thread.join()


def test_the_doctor_waits_until_a_thread_ends(monkeypatch):
    monkeypatch.setattr(profiled_run, "SILENT_SECONDS", 60.0)  # the thread may wait for a core
    done = []
    thread = threading.Thread(target=lambda: done.append(1))
    thread.start()
    assert wait_for_threads(lambda: 0, lambda: False) == "done"
    assert done == [1]


def test_the_doctor_does_not_wait_for_a_thread_without_events(running_thread, monkeypatch):
    monkeypatch.setattr(profiled_run, "SILENT_SECONDS", 0.01)
    assert wait_for_threads(lambda: 0, lambda: False) == "done"


def test_the_doctor_does_not_wait_for_a_thread_after_enough_steps(running_thread):
    event_count = count()
    assert wait_for_threads(lambda: next(event_count), lambda: next(event_count) > 10) == "done"


def test_an_interrupt_ends_the_wait(running_thread):
    def interrupt():
        raise KeyboardInterrupt

    assert wait_for_threads(lambda: 0, interrupt) == "interrupted"


def test_the_doctor_does_not_wait_for_an_idle_pool():
    others = {*profiled_run._surviving_threads()}  # threads that other tests have left in this process
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert {*profiled_run._surviving_threads()} <= others


@pytest.mark.slow
def test_the_process_ends_after_the_report_and_the_thread(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "doctor", "train.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert "worked" in done.stdout
    assert "No training loop was found" in done.stdout


LOOP = """
import sys
from forebay.doctor.capture.session import Session
session = Session._current
for number in range(200):
    session.ledger.write(("step", "optimizer.step", 0), number * 1_000_000, number * 1_000_000)  # steps of 1 ms
print("ended")
"""


@pytest.mark.parametrize(("has_steps", "printed"), [(True, ""), (False, "ended\n")])
def test_stop_ends_the_script_only_if_the_capture_has_steps(tmp_path, capsys, has_steps, printed):
    (tmp_path / "train.py").write_text(LOOP)
    run = RunRequest(str(tmp_path / "train.py"), stop=True, warm_up=2, steps=20)
    assert profile_run(run, has_steps=lambda capture: has_steps).ended in ("done", "exit 0")
    assert capsys.readouterr().out == printed
