"""Process pools return results and errors, and refuse functions that they cannot send."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from tests.transforms.workers.pool_actions import NBYTES, act, posix

from forebay.core.shared_memory import SharedBlock
from forebay.errors import PipelineError
from forebay.transforms.workers.process_pool import ProcessPool


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


class NotLoadable:
    """A function that can be pickled, but that no process can load."""

    home = os.getpid()

    def __call__(self, memory, task):
        return task

    def __setstate__(self, state):
        raise AttributeError("cannot be found here")

    def __getstate__(self):
        return {"home": self.home}


@pytest.fixture(scope="module")
def shared_pool():
    with ProcessPool(act, 2) as pool:
        yield pool


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


def test_the_reason_may_end_with_a_full_stop():
    class Addresses(Unpicklable):
        def __reduce__(self):
            raise TypeError("it has addresses. Make it again.")

    with pytest.raises(PipelineError, match=r"processes: it has addresses\. Make it again\. Define it"):
        ProcessPool(Addresses(), 1)


def test_a_function_that_cannot_be_pickled_is_refused_with_the_reason():
    with pytest.raises(PipelineError, match=r"Unpicklable cannot be sent to worker processes: no way"):
        ProcessPool(Unpicklable(), 1)


def test_the_error_names_a_function_that_does_not_load_in_the_worker(block):
    with (
        ProcessPool(NotLoadable(), 1) as pool,
        pytest.raises(PipelineError, match=r"could not load NotLoadable.*cannot be found"),
    ):
        pool.run(0, block, 1)


def test_a_pool_of_zero_processes_is_refused():
    with pytest.raises(PipelineError, match="pool of 0 processes"):
        ProcessPool(act, 0)
