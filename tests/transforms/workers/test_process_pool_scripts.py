"""Process pools in scripts: no process outlives its parent.

If a script lacks `if __name__ == "__main__":`, the error says so.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest
from tests.transforms.workers.pool_actions import posix, wait_until


def has_ended(pid):
    """Return whether a process has ended. A zombie has ended too: it waits until init collects it."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def run_script(tmp_path, text, **options):
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


SLEEPING_SCRIPT = """
import contextlib, sys, threading, time
from forebay.transforms.workers.process_pool import ProcessPool
from forebay.core.shared_memory import SharedBlock

def nap(memory, seconds):
    time.sleep(seconds)

def drive(pool, block):
    with contextlib.suppress(RuntimeError):  # the call fails when the script ends its workers
        pool.run(1, block, 600)

if __name__ == "__main__":
    pool, block = ProcessPool(nap, 2), SharedBlock(1 << 20)
    pool.run(0, block, 0)
    pool.run(1, block, 0)
    threading.Thread(target=drive, args=(pool, block), daemon=True).start()
    print(*pool.pids, flush=True)
    sys.stdin.read()
"""


@contextmanager
def sleeping_script(tmp_path, **options):
    """Run a script with an idle and a busy worker. Yield its process and its workers' ids."""
    with run_script(tmp_path, SLEEPING_SCRIPT, stdin=subprocess.PIPE, **options) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        yield parent, pids


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_idle_and_busy_workers_end_with_their_parent(tmp_path, number):
    with sleeping_script(tmp_path) as (parent, pids):
        parent.send_signal(number)
        parent.wait(60)
        wait_until(lambda: all(map(has_ended, pids)))
        assert parent.stderr.read() == ""


def test_a_script_that_never_closes_its_pool_exits_silently(tmp_path):
    with sleeping_script(tmp_path) as (parent, pids):
        _, stderr = parent.communicate("", timeout=100)
        assert (parent.returncode, stderr) == (0, "")
        assert not any(psutil.pid_exists(pid) for pid in pids)


@posix
def test_ctrl_c_ends_a_script_and_its_workers_with_one_traceback(tmp_path):
    with sleeping_script(tmp_path, start_new_session=True) as (parent, pids):
        os.killpg(parent.pid, signal.SIGINT)
        parent.wait(60)
        wait_until(lambda: all(map(has_ended, pids)))
        assert re.findall(r"^Traceback|^KeyboardInterrupt", parent.stderr.read(), re.MULTILINE) == [
            "Traceback",
            "KeyboardInterrupt",
        ]


NAMED_MEMORY_SCRIPT = """
from forebay.core import shared_memory as shared
from forebay.transforms.workers.process_pool import ProcessPool
shared._create, shared._attach = shared._create_named, shared._attach_named  # the workers import this script too

def first_byte(memory, task):
    memory[0] = bytes([task])
    return task

if __name__ == "__main__":
    with ProcessPool(first_byte, 2) as pool:
        for task in range(20):
            with shared.SharedBlock(1 << 20) as block:
                assert [pool.run(worker, block, task) for worker in range(2)] == [task, task]
                assert bytes(block.memory[:1]) == bytes([task])
    kept = shared.SharedBlock(1 << 20)
"""


def test_named_memory_is_freed_without_a_warning_of_the_resource_tracker(tmp_path):
    with run_script(tmp_path, NAMED_MEMORY_SCRIPT) as script:
        _, stderr = script.communicate(timeout=100)
    assert (script.returncode, stderr) == (0, "")


PROMPT = """
from forebay.transforms.workers.process_pool import ProcessPool
from forebay.core.shared_memory import SharedBlock

def double(memory, task):
    return 2 * task

with ProcessPool(double, 1) as pool, SharedBlock(1 << 20) as block:
    print(pool.run(0, block, 21))
"""


def test_functions_typed_at_a_prompt_run_without_a_module_or_guard():
    done = subprocess.run([sys.executable, "-c", PROMPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("42\n", "")


UNGUARDED_SCRIPT = """
from forebay.transforms.workers.process_pool import ProcessPool
from forebay.core.shared_memory import SharedBlock

def same(memory, task):
    return task

pool = ProcessPool(same, 2)
pool.run(0, SharedBlock(1 << 20), 0)
"""


def test_a_script_without_a_guard_fails_with_the_remedy(tmp_path):
    with run_script(tmp_path, UNGUARDED_SCRIPT) as script:
        _, stderr = script.communicate(timeout=100)
    assert script.returncode == 1
    assert "cannot be started while a worker imports this script" in stderr  # from the workers
    assert re.search(r"WorkerError: worker 0 .* exit code 1.*`if __name__ == \"__main__\":`", stderr)  # from the parent
