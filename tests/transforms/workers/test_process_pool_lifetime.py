"""Process pools report the deaths of workers, and `close()` ends every process."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.transforms.workers.pool_actions import act, posix, wait_until

from forebay.errors import FeedClosedError, WorkerError
from forebay.transforms.workers.process_pool import ProcessPool

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
