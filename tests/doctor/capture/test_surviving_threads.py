"""A thread that goes on when the script is done: watched while anything is seen of it, never waited for in vain."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from forebay.doctor.capture import run_watched as outliving
from forebay.doctor.capture.run_watched import await_threads

SCRIPT = """
import threading, time
def work():
    time.sleep(0.5)
    print("worked")
threading.Thread(target=work).start()
print("main is done")
"""


@pytest.fixture
def released():
    """A thread that goes on until the test is over."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    yield release
    release.set()
    thread.join()


def test_it_is_waited_for_until_it_ends(monkeypatch):
    monkeypatch.setattr(outliving, "SILENT_SECONDS", 60.0)  # however long it has no core
    done = []
    thread = threading.Thread(target=lambda: done.append(1))
    thread.start()
    assert await_threads(lambda: 0, lambda: False) == "done"
    assert done == [1]


def test_it_is_left_alone_when_nothing_is_seen_of_it(released, monkeypatch):
    monkeypatch.setattr(outliving, "SILENT_SECONDS", 0.01)
    assert await_threads(lambda: 0, lambda: False) == "done"


def test_it_is_left_alone_when_enough_was_seen(released):
    seen = count()
    assert await_threads(lambda: next(seen), lambda: next(seen) > 10) == "done"


def test_who_interrupts_is_heard(released):
    def interrupt():
        raise KeyboardInterrupt

    assert await_threads(lambda: 0, interrupt) == "interrupted"


def test_an_idle_pool_is_not_waited_for():
    others = {*outliving._outliving()}  # what other tests have left in this process
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert {*outliving._outliving()} <= others


def test_the_report_comes_out_and_the_process_ends_with_the_thread(tmp_path):
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
    assert "No loop was found" in done.stdout
