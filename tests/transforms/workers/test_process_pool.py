"""Process pools return results, errors and deaths; no process outlives the pool or its parent."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from forebay.core.shared_memory import SharedBlock
from forebay.errors import FeedClosedError, PipelineError, WorkerError
from forebay.transforms.workers.process_pool import ProcessPool

NBYTES = 1 << 16
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


class UnloadableError(Exception):
    """Pickles but does not load: its constructor takes two arguments and stores one."""

    def __init__(self, first, second):
        super().__init__(first)


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not this one")


class Unpicklable:
    """A function that no pickler can pickle."""

    def __call__(self, memory, task):
        return task

    def __reduce__(self):
        raise TypeError("no way")


class LoadsOnlyInParent:
    """A function that loads in this process only."""

    home = os.getpid()

    def __call__(self, memory, task):
        return task

    def __setstate__(self, state):
        raise AttributeError("cannot be found here")

    def __getstate__(self):
        return {"home": self.home}


def act(memory, task):
    """The function of every worker: run the action that the task names."""
    verb, *arguments = task
    return ACTIONS[verb](memory, *arguments)


def fill(memory, value):
    array = np.ndarray((NBYTES,), "uint8", buffer=memory)
    array[:] = value
    return os.getpid(), int(array[0])


def fail(memory, kind, *arguments):
    raise kind(*arguments)


def sleep(memory, mark):
    Path(mark).touch()
    time.sleep(600)


def meet(memory, own, other):
    """Return once another worker is in its call too."""
    Path(own).touch()
    wait_until(Path(other).exists)


def attached_blocks(memory):
    return Path("/proc/self/maps").read_text().count("memfd:forebay")


ACTIONS = {
    "fill": fill,
    "fail": fail,
    "sleep": sleep,
    "meet": meet,
    "blocks": attached_blocks,
    "echo": lambda memory, value: value,
    "unpicklable": lambda memory: threading.Lock(),
    "exit": lambda memory, code: os._exit(code),
    "sys.exit": lambda memory: sys.exit(3),
    "abort": lambda memory: os.abort(),
    "interrupt": lambda memory: os.kill(os.getpid(), signal.SIGINT),
    "loaded": lambda memory: sorted({name.partition(".")[0] for name in sys.modules}),
}


@pytest.fixture(scope="module")
def shared_pool():
    with ProcessPool(act, 2) as pool:
        yield pool


@pytest.fixture
def pool():
    with ProcessPool(act, 1) as pool:
        yield pool


@pytest.fixture
def block():
    with SharedBlock(NBYTES) as block:
        yield block


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.01)


def has_ended(pid):
    """Return whether a process has ended; init collects the zombie of an orphan."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def run_script(tmp_path, text, **options):
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


# Calls


def test_a_worker_writes_to_the_block_and_returns_a_result(shared_pool, block):
    pid, first = shared_pool.run(1, block, ("fill", 7))
    assert (pid, first) == (shared_pool.pids[1], 7)
    assert pid != os.getpid()
    np.testing.assert_array_equal(np.ndarray((NBYTES,), "uint8", buffer=block.memory), np.full(NBYTES, 7))


def test_two_hundred_calls_with_two_workers_and_three_blocks_are_all_correct(shared_pool):
    blocks = [SharedBlock(NBYTES) for _ in range(3)]
    free = [[blocks[0], blocks[1]], [blocks[2]]]

    def drive(worker):
        for value in range(100):
            block = free[worker][value % len(free[worker])]
            shared_pool.run(worker, block, ("fill", value + worker))
            assert (np.ndarray((NBYTES,), "uint8", buffer=block.memory) == value + worker).all()
        return worker

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(drive, range(2))) == [0, 1]
    for block in blocks:
        block.close()


def test_memory_does_not_grow_with_the_number_of_blocks(shared_pool):
    def use_fresh_blocks(count):
        for value in range(count):
            with SharedBlock(NBYTES * 16) as block:
                shared_pool.run(0, block, ("fill", value))
        return psutil.Process(shared_pool.pids[0]).memory_info().rss

    before = use_fresh_blocks(20)
    assert use_fresh_blocks(200) - before < 20 * NBYTES * 16  # all blocks together are ten times larger


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_worker_unmaps_retired_blocks_and_keeps_those_in_use(pool, block):
    with SharedBlock(NBYTES) as other:
        pool.run(0, other, ("echo", 1))
        assert pool.run(0, block, ("blocks",)) == 2
    assert pool.run(0, block, ("blocks",)) == 1


def test_threads_wait_without_the_gil(shared_pool, block, tmp_path):
    marks = [tmp_path / "first", tmp_path / "second"]
    tasks = [("meet", *marks), ("meet", *reversed(marks))]
    with ThreadPoolExecutor(2) as threads:  # a call returns only while the other one runs
        assert list(threads.map(lambda worker: shared_pool.run(worker, block, tasks[worker]), range(2))) == [None, None]


def test_workers_load_no_framework(shared_pool, block):
    loaded = shared_pool.run(0, block, ("loaded",))
    assert "numpy" in loaded
    assert not {"tensorflow", "torch", "jax", "keras", "cupy", "rich", "jinja2"} & set(loaded)


# Errors


def test_an_error_keeps_its_type_and_names_its_worker(shared_pool, block):
    with pytest.raises(KeyError, match="label") as caught:
        shared_pool.run(1, block, ("fail", KeyError, "label"))
    note = caught.value.__notes__[-1]
    assert f"In worker 1 (pid {shared_pool.pids[1]}):" in note
    assert "in fail" in note


def test_a_worker_continues_after_an_error(shared_pool, block):
    pids = shared_pool.pids
    with pytest.raises(ValueError, match="bad"):
        shared_pool.run(0, block, ("fail", ValueError, "bad"))
    assert shared_pool.run(0, block, ("echo", "still here")) == "still here"
    assert shared_pool.pids == pids


@pytest.mark.parametrize("kind", [UnloadableError, UnpicklableError])
def test_an_error_that_cannot_be_pickled_is_returned_as_text(shared_pool, block, kind):
    with pytest.raises(RuntimeError, match=rf"{kind.__name__}.*the text"):
        shared_pool.run(0, block, ("fail", kind, "the text", "more"))


def test_sys_exit_in_a_worker_does_not_end_the_waiting_thread(shared_pool, block):
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        shared_pool.run(0, block, ("sys.exit",))


def test_a_result_that_cannot_be_pickled_fails_the_call(shared_pool, block):
    with pytest.raises(TypeError, match="lock"):
        shared_pool.run(0, block, ("unpicklable",))
    assert shared_pool.run(0, block, ("echo", 1)) == 1


@posix
def test_workers_ignore_interrupts(shared_pool, block):
    shared_pool.run(0, block, ("interrupt",))
    assert shared_pool.run(0, block, ("echo", 1)) == 1


# The function


def test_a_lambda_is_sent_by_cloudpickle(block):
    step = 2
    with ProcessPool(lambda memory, task: task * step, 1) as pool:
        assert pool.run(0, block, 21) == 42


def test_a_lambda_without_cloudpickle_is_refused_with_remedies(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(PipelineError, match=r"<lambda> cannot be sent.*top level.*cloudpickle.*where=\"thread\""):
        ProcessPool(lambda memory, task: task, 1)


def test_a_function_that_cannot_be_pickled_is_refused_with_the_reason():
    with pytest.raises(PipelineError, match=r"Unpicklable cannot be sent to worker processes: no way"):
        ProcessPool(Unpicklable(), 1)


def test_a_function_that_does_not_load_in_the_worker_is_named(block):
    with (
        ProcessPool(LoadsOnlyInParent(), 1) as pool,
        pytest.raises(PipelineError, match=r"could not load LoadsOnlyInParent.*cannot be found"),
    ):
        pool.run(0, block, 1)


def test_a_pool_of_zero_processes_is_refused():
    with pytest.raises(PipelineError, match="pool of 0 processes"):
        ProcessPool(act, 0)


# Deaths


@posix
def test_a_worker_killed_during_a_call_fails_the_call_at_once(pool, block, tmp_path):
    mark = tmp_path / "in the call"
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(pool.run, 0, block, ("sleep", mark))
        wait_until(mark.exists)
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match=rf"pid {pool.pids[0]}.*SIGKILL.*out-of-memory"):
            answer.result(timeout=60)


def test_a_worker_that_exits_names_its_exit_code(pool, block):
    with pytest.raises(WorkerError, match=r"which runs act, ended with exit code 7.*os\._exit"):
        pool.run(0, block, ("exit", 7))


@posix
def test_a_crash_names_its_signal(pool, block):
    with pytest.raises(WorkerError, match=r"SIGABRT.*Native code crashed"):
        pool.run(0, block, ("abort",))


def test_a_dead_worker_stays_dead_until_it_is_restarted(pool, block):
    for _ in range(2):
        with pytest.raises(WorkerError, match="exit code 7"):
            pool.run(0, block, ("exit", 7))
    pool.restart(0)
    assert pool.run(0, block, ("fill", 3))[0] == pool.pids[0]


@posix
def test_an_interrupted_call_ends_its_worker_so_that_no_stale_result_is_read(pool, block, tmp_path):
    mark = tmp_path / "in the call"
    threading.Thread(target=interrupt_once, args=(mark.exists,)).start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(0, block, ("sleep", mark))
    with pytest.raises(WorkerError, match="SIGTERM"):
        pool.run(0, block, ("echo", 1))
    pool.restart(0)
    assert pool.run(0, block, ("echo", 2)) == 2


def interrupt_once(condition):
    wait_until(condition)
    os.kill(os.getpid(), signal.SIGINT)


# Closing


def test_close_ends_every_process_and_leaves_no_zombie(block):
    pool = ProcessPool(act, 2)
    pool.run(0, block, ("echo", 1))  # worker 0 is ready, worker 1 may still be starting
    pids = pool.pids
    pool.close()
    pool.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_closed_pool_refuses_calls_and_restarts(pool, block):
    pool.close()
    with pytest.raises(FeedClosedError, match="was closed"):
        pool.run(0, block, ("echo", 1))
    with pytest.raises(FeedClosedError, match="was closed"):
        pool.restart(0)


def test_close_wakes_a_waiting_thread(block, tmp_path):
    pool, mark = ProcessPool(act, 1), tmp_path / "in the call"
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(pool.run, 0, block, ("sleep", mark))
        wait_until(mark.exists)
        pool.close()
        with pytest.raises(FeedClosedError, match="while it ran act"):
            answer.result(timeout=60)


def test_close_works_from_several_threads_at_once_and_after_a_death(block):
    pool = ProcessPool(act, 2)
    pids = pool.pids
    with pytest.raises(WorkerError):
        pool.run(1, block, ("exit", 1))
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: pool.close(), range(3)))
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_an_unreferenced_pool_ends_its_workers(block):
    pool = ProcessPool(act, 1)
    pool.run(0, block, ("echo", 1))
    worker = psutil.Process(pool.pids[0])
    del pool
    wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE)
    os.waitpid(worker.pid, 0)


# Scripts

SLEEPING_SCRIPT = """
import contextlib, sys, threading, time
from forebay.transforms.workers.process_pool import ProcessPool
from forebay.core.shared_memory import SharedBlock

def nap(memory, seconds):
    time.sleep(seconds)

def drive(pool, block):
    with contextlib.suppress(RuntimeError):  # the worker's end, when the script ends
        pool.run(1, block, 600)

if __name__ == "__main__":
    pool, block = ProcessPool(nap, 2), SharedBlock(1 << 20)
    pool.run(0, block, 0)
    pool.run(1, block, 0)
    threading.Thread(target=drive, args=(pool, block), daemon=True).start()
    print(*pool.pids, flush=True)
    sys.stdin.read()
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_idle_and_busy_workers_end_with_their_parent(tmp_path, number):
    with run_script(tmp_path, SLEEPING_SCRIPT, stdin=subprocess.PIPE) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(number)
        parent.wait(60)
        wait_until(lambda: all(map(has_ended, pids)))
        assert parent.stderr.read() == ""


def test_a_script_that_never_closes_its_pool_exits_silently(tmp_path):
    with run_script(tmp_path, SLEEPING_SCRIPT, stdin=subprocess.PIPE) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        _, stderr = parent.communicate("", timeout=100)
        assert (parent.returncode, stderr) == (0, "")
        assert not any(psutil.pid_exists(pid) for pid in pids)


@posix
def test_ctrl_c_ends_a_script_and_its_workers_with_one_traceback(tmp_path):
    with run_script(tmp_path, SLEEPING_SCRIPT, stdin=subprocess.PIPE, start_new_session=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
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
