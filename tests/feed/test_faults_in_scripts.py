"""Forks, Ctrl-C, ends of scripts and of feeds in mid-epoch: no process hangs."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from tests.support.run_python import run_python

import forebay as fb


def run_script(source):
    return run_python("-c", textwrap.dedent(source))


def test_a_feed_in_a_forked_child_raises_because_its_threads_are_gone():
    done = run_script("""
        import os, warnings
        warnings.simplefilter("ignore")
        import numpy as np, forebay as fb
        feed = fb.from_arrays(np.arange(100_000)).batch(10).feed("numpy")
        iterator = iter(feed)
        next(iterator)
        child = os.fork()
        if child == 0:
            for use in (lambda: list(iterator), lambda: iter(feed)):
                try:
                    use()
                except fb.ForebayError as error:
                    print("child:", type(error).__name__, error)
            del iterator, feed
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", sum(1 for _ in iterator))
    """)
    assert done.stdout.count("child: FeedError this feed was started in process") == 2
    assert "parent: 9999" in done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("where", ["thread", "process"])
# Status 0 after an error: Forebay handles errors of maps in the forked process too, and the process then ends normally.
@pytest.mark.parametrize(
    ("ending", "status"), [("os._exit(3)", 3), ("sys.exit(3)", 3), ("raise OSError('in the child')", 0), ("pass", 0)]
)
def test_a_process_that_a_map_forks_ends_and_the_feed_continues(where, ending, status):
    done = run_script(f"""
        import os, sys, time
        import numpy as np, forebay as fb
        def fork_on_fifty(batch):
            if 50 in batch:
                child = os.fork()
                if child == 0:
                    {ending}
                    return -batch
                for _ in range(3000):
                    pid, status = os.waitpid(child, os.WNOHANG)
                    if pid:
                        return np.full_like(batch, os.waitstatus_to_exitcode(status))
                    time.sleep(0.01)
                os.kill(child, 9)
                raise TimeoutError("the child hangs")
            return batch
        pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fork_on_fifty, where="{where}")
        print([int(batch[0]) for _ in range(2) for batch in pipeline.feed("numpy")])
    """)
    exit_code = status if where == "process" or "_exit" in ending else 0  # Python ignores sys.exit() in a thread
    epoch = [0, 10, 20, 30, 40, exit_code, 60, 70, 80, 90]
    assert (done.stdout, done.returncode) == (f"{epoch * 2}\n", 0), done.stderr


@pytest.mark.parametrize(
    "source", ["fb.from_generator(blocked).batch(4)", "fb.from_arrays(np.arange(9)).batch(4).map(stuck)"]
)
def test_ctrl_c_ends_a_feed_that_waits(source):
    script = f"""
        import threading, numpy as np, forebay as fb
        calls = []
        def blocked():
            yield 1
            print("waiting", flush=True)
            threading.Event().wait()
        def stuck(batch):
            if calls:
                print("waiting", flush=True)
                threading.Event().wait()
            calls.append(1)
            return batch
        for batch in {source}.feed("numpy"):
            pass
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0


@pytest.mark.parametrize("ending", ["pass", "feed.close()", "del feed", "raise SystemExit(0)"])
def test_a_script_that_ends_in_mid_epoch_exits_cleanly(ending):
    done = run_script(f"""
        import numpy as np, forebay as fb, forebay.feed.runner
        forebay.feed.runner.JOIN_SECONDS = 60.0  # after 2 s, close() could log a warning on a busy machine
        feed = fb.from_arrays(np.zeros((10_000, 100))).shuffle(seed=0).batch(10).feed("numpy")
        batch = next(feed)
        {ending}
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_thread_raises_when_the_garbage_collector_ends_a_running_feed():
    for _ in range(20):
        feed = fb.from_arrays(np.zeros((1000, 100))).batch(10).feed("numpy")
        cycle = [feed]
        cycle.append(cycle)  # only the garbage collector frees a reference cycle
        next(iter(feed))
        del feed, cycle
