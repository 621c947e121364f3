"""Readback: later, in order, bounded; all_finite: asked where the data is."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from forebay.adapters.readback import numpy as numpy_results
from forebay.adapters.readback.all_finite import all_finite
from forebay.adapters.readback.readback import Readback, Result
from forebay.errors import BudgetError, FeedClosedError, SpecError

CASES = Path(__file__).with_name("readback_cases.py")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


class Device:
    """A device whose results arrive when a test says so, or when somebody waits for them."""

    def __init__(self):
        self.pending = []
        self.waited = []
        self.closed = 0

    def __call__(self, limit):
        return self

    def fetch(self, leaves):
        self.pending.append(Pending(self, [np.array(leaf) for leaf in leaves]))
        return self.pending[-1]

    def close(self):
        self.closed += 1


class Pending:
    def __init__(self, device, arrays):
        self.device, self.arrays, self.arrived, self.error = device, arrays, False, None

    def take(self):
        if not self.arrived:
            self.device.waited.append(int(self.arrays[0]))
        if self.error is not None:
            raise self.error
        return self.arrays


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(numpy_results, "Fetcher", made)
    return made


def tags(results):
    return [result.tag for result in results]


def put(readback, count):
    for step in range(count):
        readback.put(step, tag=step)


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_every_framework_passes_the_same_cases(framework):
    """Frameworks clash in one process, so each has its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    environment = os.environ | QUIET | {"FOREBAY_FRAMEWORK": framework}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_only_what_has_arrived_is_ready_and_never_past_what_has_not(device):
    readback = Readback()
    put(readback, 4)
    device.pending[0].arrived = device.pending[1].arrived = device.pending[3].arrived = True
    assert tags(readback.ready()) == [0, 1]
    assert readback.ready() == []
    device.pending[2].arrived = True
    assert tags(readback.ready()) == [2, 3]
    assert device.waited == []


def test_drain_waits_for_all_of_them(device):
    readback = Readback()
    put(readback, 3)
    assert readback.drain() == [Result(0, 0), Result(1, 1), Result(2, 2)]
    assert device.waited == [0, 1, 2]
    assert readback.drain() == []


def test_put_waits_for_the_oldest_once_the_limit_is_reached_and_not_before(device):
    readback = Readback(limit=3)
    put(readback, 3)
    assert device.waited == []
    readback.put(3, tag=3)
    assert device.waited == [0]
    assert tags(readback.ready()) == [0]
    assert tags(readback.drain()) == [1, 2, 3]


def test_results_nobody_takes_are_refused_beyond_their_budget():
    readback = Readback(limit=1, host_bytes=4096)
    with pytest.raises(BudgetError, match=r"3 results of 6.0 KiB.*ready\(\).*host_bytes="):
        [readback.put(np.zeros(2048, np.uint8)) for _ in range(100)]
    assert len(readback.drain()) == 4
    readback.put(np.zeros(2048, np.uint8))


def test_one_result_larger_than_the_budget_passes_when_it_is_taken():
    readback = Readback(host_bytes=1024)
    for step in range(5):
        readback.put(np.zeros(4096, np.uint8), tag=step)
        assert tags(readback.ready()) == [step]


def test_a_result_that_fails_comes_after_those_before_it_and_before_those_behind(device):
    readback = Readback()
    put(readback, 4)
    device.pending[2].error = OSError("the device fell off")
    assert tags(readback.drain()) == [0, 1]
    with pytest.raises(OSError, match="fell off") as caught:
        readback.drain()
    assert "tag=2" in caught.value.__notes__[0]
    assert tags(readback.drain()) == [3]


def test_a_failure_is_told_once_it_is_noticed(device, monkeypatch):
    readback = Readback()
    put(readback, 1)

    def fail(pending):
        raise OSError("the device fell off")

    monkeypatch.setattr(Pending, "take", fail)
    device.pending[0].arrived = True
    with pytest.raises(OSError, match="fell off"):
        readback.ready()
    assert readback.ready() == []


def test_closing_waits_and_keeps_the_results(device):
    with Readback() as readback:
        put(readback, 2)
    assert device.waited == [0, 1]
    assert device.closed == 1
    assert tags(readback.drain()) == [0, 1]
    readback.close()
    assert device.closed == 1


def test_a_closed_readback_takes_no_more():
    readback = Readback()
    readback.close()
    with pytest.raises(FeedClosedError, match="make another one"):
        readback.put(1)


def test_an_error_in_the_loop_is_not_hidden_by_one_of_the_device(device):
    readback = Readback()
    put(readback, 1)
    device.pending[0].error = OSError("the device fell off")
    with pytest.raises(KeyError, match="in the loop"), readback:
        raise KeyError("in the loop")


def test_results_are_what_they_were_when_they_were_put():
    array, readback = np.zeros(3), Readback()
    readback.put(array)
    array += 1
    assert readback.drain()[0].value.tolist() == [0, 0, 0]


def test_one_thread_may_put_and_another_take():
    readback, found = Readback(limit=2), []
    done = threading.Event()

    def take():
        while not done.is_set() or len(found) < 2000:
            found.extend(tags(readback.ready()))

    taker = threading.Thread(target=take)
    taker.start()
    put(readback, 2000)
    done.set()
    taker.join()
    assert found == list(range(2000))


@pytest.mark.parametrize("tree", ["loss", {"x": object()}, [np.zeros(2), {1, 2}], [1.0, 2.0]])
def test_what_is_no_array_is_refused(tree):
    with pytest.raises(SpecError, match=r"is no array of NumPy, PyTorch.*lists of arrays"):
        Readback().put(tree)


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(BudgetError, match="limit=0"):
        Readback(limit=0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_a_bad_value_in_numpy_is_found(value, dtype):
    good, bad = np.ones(100, dtype), np.full(100, value, dtype)
    assert all_finite({"a": good, "b": [good, 3, 2.5]})
    assert not all_finite({"a": good, "b": [good, bad]})


def test_integers_are_finite_by_nature_and_nothing_is_finite():
    assert all_finite([np.arange(3), np.array([True]), None, np.zeros((0, 2))])
    assert not all_finite(float("nan"))


@pytest.mark.parametrize("gradients", [[], [None, None], {"layer": [None]}])
def test_gradients_that_are_all_missing_are_finite(gradients):
    assert all_finite(gradients)


def test_what_is_no_number_is_refused():
    with pytest.raises(SpecError, match="neither finite nor infinite"):
        all_finite(np.array(["a"]))
