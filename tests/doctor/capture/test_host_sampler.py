"""The sampler of the host: lines and functions, and nothing that the script could notice."""

import random
import threading
import time
import weakref
from collections import Counter

import numpy as np
import pytest

from forebay.doctor.capture import host_sampler
from forebay.doctor.capture.host_sampler import HostSampler
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import PYTHON_CODE

numbers = np.random.default_rng(0).random(200_000)
listed = numbers.tolist()


@pytest.fixture
def sampler(monkeypatch):
    monkeypatch.setattr(host_sampler, "SECONDS", 0.001)
    found = HostSampler(SourceLines())
    found._seconds = 0.001
    yield found
    found.stop()


def functions_of(sampler, work, *, seconds=0.3):
    """Repeat a piece of work, and return the nanoseconds of each function that this thread was calling."""
    sampler.start()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        work()
    sampler.stop()
    found = Counter()
    for sample in sampler.samples:
        if sample.thread == threading.get_ident():
            found[sample.function] += sample.nanoseconds
    return found


def main_function(sampler, work):
    return functions_of(sampler, work).most_common(1)[0][0]


def test_a_function_written_in_c_is_named(sampler):
    assert main_function(sampler, lambda: time.sleep(0.02)) == "time.sleep"


def test_a_function_that_holds_the_gil_is_named(sampler):
    found = functions_of(sampler, lambda: sorted(listed))
    assert found["builtins.sorted"] > 0.3 * sum(found.values())


def test_a_method_of_a_global_object_has_the_name_of_its_type(sampler):
    assert main_function(sampler, lambda: numbers.argsort()) == "numpy.ndarray.argsort"


def test_a_function_of_a_library_is_named_by_the_stack(sampler):
    assert main_function(sampler, lambda: np.median(numbers)).endswith("median")


def test_a_method_of_a_local_object_has_no_name(sampler):
    local = numbers.copy()
    assert main_function(sampler, lambda: local.argsort()) == ""


def test_bytecode_of_the_script_is_python(sampler):
    def count():
        number = 0
        while number < 50_000:
            number += 1

    found = functions_of(sampler, count)
    assert found[PYTHON_CODE] + found[""] > 0.9 * sum(found.values())


def test_the_time_of_all_samples_is_the_time_of_the_run(sampler):
    start = time.perf_counter_ns()
    found = functions_of(sampler, lambda: time.sleep(0.01))
    assert 0.5 * (time.perf_counter_ns() - start) <= sum(found.values()) <= time.perf_counter_ns() - start


def test_the_script_does_not_see_the_thread(sampler):
    before = threading.active_count(), random.getstate()
    sampler.start()
    assert (threading.active_count(), random.getstate()) == before
    time.sleep(0.05)
    assert random.getstate() == before[1]


def test_no_variable_of_the_script_is_kept_alive(sampler):
    class Tensor:
        pass

    def use():
        tensor = Tensor()
        time.sleep(0.02)
        return weakref.ref(tensor)

    sampler.start()
    references = [use() for _ in range(10)]
    assert [reference() for reference in references] == [None] * 10


def test_the_thread_ends_with_stop(sampler):
    sampler.start()
    sampler.stop()
    count = len(sampler.samples)
    sampler.stop()
    time.sleep(0.05)
    assert len(sampler.samples) == count
    assert not sampler._has_ended.locked() or sampler._has_ended.release() is None


def test_many_samples_are_thinned_out(sampler, monkeypatch):
    monkeypatch.setattr(host_sampler, "MAX_SAMPLES", 20)
    functions_of(sampler, lambda: time.sleep(0.01))
    assert len(sampler.samples) <= 21
    assert sampler._seconds > 0.001
