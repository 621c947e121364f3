"""Readback returns the results of `put` in order and within its limits, without blocking the loop.

`all_finite` finds NaN and infinity.
"""

import threading

import numpy as np
import pytest

from forebay.adapters.readback import numpy as numpy_readback
from forebay.adapters.readback.readback import Readback, Result, all_finite
from forebay.errors import BudgetError, FeedClosedError, SpecError


class Device:
    """Replaces `HostCopier`.

    A copy arrives when the test sets its `has_arrived`, or when code waits for it.
    """

    def __init__(self):
        self.pending = []
        self.waited = []
        self.closed = 0

    def __call__(self, limit):
        return self

    def start_copy(self, leaves):
        self.pending.append(FakeCopy(self, [np.array(leaf) for leaf in leaves]))
        return self.pending[-1]

    def close(self):
        self.closed += 1


class FakeCopy:
    """A copy that arrives when the test sets `has_arrived`."""

    def __init__(self, device, arrays):
        self.device, self.arrays, self.has_arrived, self.error = device, arrays, False, None

    def take(self):
        if not self.has_arrived:
            self.device.waited.append(int(self.arrays[0]))
        if self.error is not None:
            raise self.error
        return self.arrays


@pytest.fixture
def device(monkeypatch):
    fake = Device()
    monkeypatch.setattr(numpy_readback, "HostCopier", fake)
    return fake


def tags(results):
    return [result.tag for result in results]


def put(readback, count):
    for step in range(count):
        readback.put(step, tag=step)


def test_ready_returns_arrived_results_up_to_the_first_pending_one(device):
    readback = Readback()
    put(readback, 4)
    device.pending[0].has_arrived = device.pending[1].has_arrived = device.pending[3].has_arrived = True
    assert tags(readback.ready()) == [0, 1]
    assert readback.ready() == []
    device.pending[2].has_arrived = True
    assert tags(readback.ready()) == [2, 3]
    assert device.waited == []


def test_drain_waits_for_all_results(device):
    readback = Readback()
    put(readback, 3)
    assert readback.drain() == [Result(0, 0), Result(1, 1), Result(2, 2)]
    assert device.waited == [0, 1, 2]
    assert readback.drain() == []


def test_the_repr_counts_results():
    readback = Readback(limit=1)
    assert repr(readback) == "<Readback: 0 in flight, 0 arrived (0 B)>"
    [readback.put(np.zeros(2048, np.uint8)) for _ in range(3)]
    assert repr(readback) == "<Readback: 1 in flight, 2 arrived (4.0 KiB)>"
    readback.close()
    assert repr(readback) == "<Readback: closed, 0 in flight, 3 arrived (6.0 KiB)>"


def test_put_waits_for_the_oldest_result_only_at_the_limit(device):
    readback = Readback(limit=3)
    put(readback, 3)
    assert device.waited == []
    readback.put(3, tag=3)
    assert device.waited == [0]
    assert tags(readback.ready()) == [0]
    assert tags(readback.drain()) == [1, 2, 3]


def test_put_refuses_more_when_untaken_results_exceed_the_budget():
    readback = Readback(limit=1, host_bytes=4096)
    with pytest.raises(BudgetError, match=r"3 results of 6.0 KiB.*ready\(\).*host_bytes="):
        [readback.put(np.zeros(2048, np.uint8)) for _ in range(100)]
    assert len(readback.drain()) == 4
    readback.put(np.zeros(2048, np.uint8))


def test_one_result_larger_than_the_budget_is_allowed_if_taken():
    readback = Readback(host_bytes=1024)
    for step in range(5):
        readback.put(np.zeros(4096, np.uint8), tag=step)
        assert tags(readback.ready()) == [step]


def test_an_error_is_raised_between_the_results_before_and_after_it(device):
    readback = Readback()
    put(readback, 4)
    device.pending[2].error = OSError("the device was lost")
    assert tags(readback.drain()) == [0, 1]
    with pytest.raises(OSError, match="was lost") as caught:
        readback.drain()
    assert "tag=2" in caught.value.__notes__[0]
    assert tags(readback.drain()) == [3]


def test_a_failure_is_raised_once(device, monkeypatch):
    readback = Readback()
    put(readback, 1)

    def fail(pending):
        raise OSError("the device was lost")

    monkeypatch.setattr(FakeCopy, "take", fail)
    device.pending[0].has_arrived = True
    with pytest.raises(OSError, match="was lost"):
        readback.ready()
    assert readback.ready() == []


def test_close_waits_and_keeps_the_results(device):
    with Readback() as readback:
        put(readback, 2)
    assert device.waited == [0, 1]
    assert device.closed == 1
    assert tags(readback.drain()) == [0, 1]
    readback.close()
    assert device.closed == 1


def test_a_closed_readback_refuses_put():
    readback = Readback()
    readback.close()
    with pytest.raises(FeedClosedError, match="make another Readback"):
        readback.put(1)


def test_an_error_in_the_loop_is_not_hidden_by_a_device_error(device):
    readback = Readback()
    put(readback, 1)
    device.pending[0].error = OSError("the device was lost")
    with pytest.raises(KeyError, match="in the loop"), readback:
        raise KeyError("in the loop")


def test_results_have_the_values_at_the_call_of_put():
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
def test_objects_that_are_not_arrays_are_refused(tree):
    with pytest.raises(SpecError, match=r"is not an array of NumPy, PyTorch.*lists of arrays"):
        Readback().put(tree)


def test_a_limit_of_zero_is_refused():
    with pytest.raises(BudgetError, match="limit=0"):
        Readback(limit=0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_nan_and_infinity_are_found_in_numpy_arrays(value, dtype):
    good, bad = np.ones(100, dtype), np.full(100, value, dtype)
    assert all_finite({"a": good, "b": [good, 3, 2.5]})
    assert not all_finite({"a": good, "b": [good, bad]})


def test_integers_none_and_empty_arrays_are_finite():
    assert all_finite([np.arange(3), np.array([True]), None, np.zeros((0, 2))])
    assert not all_finite(float("nan"))


@pytest.mark.parametrize("gradients", [[], [None, None], {"layer": [None]}])
def test_gradients_that_are_all_none_are_finite(gradients):
    assert all_finite(gradients)


def test_values_that_are_not_numbers_are_refused():
    with pytest.raises(SpecError, match="cannot check values of"):
        all_finite(np.array(["a"]))
