"""The host sampler finds lines and functions. It leaves no trace in the script."""

import gc
import os
import random
import sys
import threading
import time
import weakref
from collections import Counter

import pytest

from forebay.doctor.capture import host_sampler, sampling_thread
from forebay.doctor.capture.host_sampler import HostSampler
from forebay.doctor.capture.source_lines import SourceLines


@pytest.fixture
def sampler(monkeypatch):
    monkeypatch.setattr(host_sampler, "SECONDS", 0.001)
    failures = []
    found = HostSampler(SourceLines(), failures.append)
    yield found
    found.stop()
    assert failures == []


def functions_of(sampler, work, *, samples=20):
    """Repeat `work` until there are enough samples; return the nanoseconds of each function that this thread called."""
    sampler.start()
    end = time.monotonic() + 60
    while len(sampler.samples) < samples and time.monotonic() < end:
        work()
    sampler.stop()
    found = Counter()
    for sample in sampler.samples:
        if sample.thread == threading.get_ident():
            found[sample.function] += sample.nanoseconds
    return found


def test_the_line_and_the_function_of_a_thread_are_sampled(sampler):
    found = functions_of(sampler, lambda: time.sleep(0.02))
    assert found["time.sleep"] > 0.3 * sum(found.values())


def test_the_switch_interval_of_the_script_is_restored(sampler):
    before = sys.getswitchinterval()
    functions_of(sampler, lambda: time.sleep(0.01))
    assert sys.getswitchinterval() == before


class CollectorLines(SourceLines):
    """Source lines that record whether the garbage collector is enabled while the sampler reads a stack."""

    def __init__(self):
        super().__init__()
        self.was_enabled = set()

    def line_of_frame(self, frame):
        self.was_enabled.add(gc.isenabled())
        return super().line_of_frame(frame)


@pytest.mark.parametrize("pauses", [True, False])
def test_the_garbage_collector_pauses_during_samples_only_if_python_needs_it(monkeypatch, pauses):
    monkeypatch.setattr(sampling_thread, "NEEDS_PAUSE", pauses)
    lines = CollectorLines()
    functions_of(HostSampler(lines, pytest.fail), lambda: time.sleep(0.01))
    assert lines.was_enabled == {not pauses}
    assert gc.isenabled()


def test_a_garbage_collector_that_the_script_has_disabled_stays_disabled(sampler):
    gc.disable()
    try:
        functions_of(sampler, lambda: time.sleep(0.01))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_all_samples_take_at_most_the_time_of_the_run(sampler):
    start = time.perf_counter_ns()
    found = functions_of(sampler, lambda: time.sleep(0.01))
    assert 0 < sum(found.values()) <= time.perf_counter_ns() - start


def test_the_script_sees_neither_the_sampling_thread_nor_its_random_numbers(sampler):
    before = threading.active_count(), random.getstate()
    sampler.start()
    assert (threading.active_count(), random.getstate()) == before
    time.sleep(0.05)
    assert random.getstate() == before[1]


def test_the_sampler_keeps_no_variable_of_the_script_alive(sampler):
    class Tensor:
        pass

    def use():
        tensor = Tensor()
        time.sleep(0.02)
        return weakref.ref(tensor)

    sampler.start()
    references = [use() for _ in range(10)]
    assert [reference() for reference in references] == [None] * 10


def test_no_sample_is_taken_after_stop(sampler):
    sampler.start()
    sampler.stop()
    count = len(sampler.samples)
    sampler.stop()
    time.sleep(0.05)
    assert len(sampler.samples) == count


def test_the_number_of_kept_samples_is_limited(monkeypatch):
    monkeypatch.setattr(host_sampler, "MAX_SAMPLES", 5)
    few = HostSampler(SourceLines(), pytest.fail)
    few.start()
    last_times, end = set(), time.monotonic() + 60
    while len(last_times) < 20 and time.monotonic() < end:
        last_times |= {sample.time for sample in few.samples[-1:]}
        time.sleep(0.001)
    few.stop()
    assert len(few.samples) == 5


def test_a_second_stop_does_not_wait(sampler, monkeypatch):
    monkeypatch.setattr(sampling_thread, "STOP_SECONDS", 100.0)
    sampler.start()
    sampler.stop()
    start = time.monotonic()
    sampler.stop()
    assert time.monotonic() - start < 50


def test_a_forked_process_gets_its_switch_interval_back(sampler):
    before = sys.getswitchinterval()
    sampler.start()
    end = time.monotonic() + 60
    while sys.getswitchinterval() == before and time.monotonic() < end:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        sampler.forget_thread()
        sampler.stop()
        os._exit(0 if sys.getswitchinterval() == before else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_incomplete_frame_does_not_end_the_sampling(sampler, monkeypatch):
    find, incomplete = sampler._functions.find, iter([True, False] * 1000)

    def fail_now_and_then(frame):
        if next(incomplete, False):
            raise AttributeError("f_code")
        return find(frame)

    monkeypatch.setattr(sampler._functions, "find", fail_now_and_then)
    assert functions_of(sampler, lambda: time.sleep(0.01))["time.sleep"]


def test_an_error_ends_the_sampling_and_not_the_script(monkeypatch):
    failures = []
    found = HostSampler(SourceLines(), failures.append)
    monkeypatch.setattr(found._functions, "find", lambda frame: 1 / 0)
    found.start()
    end = time.monotonic() + 60
    while not failures and time.monotonic() < end:
        time.sleep(0.01)
    found.stop()
    assert [type(error) for error in failures] == [ZeroDivisionError]
