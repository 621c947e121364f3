"""The spans that the PyTorch hooks record for debug settings.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import sys
import traceback

import pytest
import torch
from tests.doctor.capture.hooks.torch_watched import watched
from torch import distributed

from forebay.doctor.capture.called_functions import CalledFunctions
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import STORED_STACK, EventKind


def settings(seen):
    return [(event.api, seen.line(event).text) for event in seen.of(EventKind.SETTING)]


def test_a_setting_that_stays_on_is_recorded_until_the_hooks_are_removed():
    with watched() as seen:
        torch.autograd.set_detect_anomaly(True)
        during = settings(seen)
    assert during == []
    assert settings(seen) == [("torch.autograd.set_detect_anomaly", "torch.autograd.set_detect_anomaly(True)")]
    torch.autograd.set_detect_anomaly(False)


def test_a_context_is_recorded_when_it_ends():
    with watched() as seen:
        with torch.autograd.set_detect_anomaly(True):
            inside = torch.is_anomaly_enabled()
        after = settings(seen)
    assert (inside, torch.is_anomaly_enabled()) == (True, False)
    assert after == [("torch.autograd.set_detect_anomaly", "with torch.autograd.set_detect_anomaly(True):")]


def test_the_other_name_of_the_context_is_recorded_too():
    with watched() as seen, pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        pass
    assert [api for api, _ in settings(seen)] == ["torch.autograd.set_detect_anomaly"]


def test_a_setting_that_is_switched_off_twice_has_one_span():
    with watched() as seen:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.use_deterministic_algorithms(False)
        torch.use_deterministic_algorithms(False)
    assert [api for api, _ in settings(seen)] == ["torch.use_deterministic_algorithms"]


@pytest.mark.parametrize(("mode", "count"), [("warn", 1), (1, 1), ("default", 0), (0, 0)])
def test_a_deterministic_debug_mode_is_recorded_unless_it_is_the_default(mode, count):
    with watched() as seen:
        torch.set_deterministic_debug_mode(mode)
    torch.set_deterministic_debug_mode(0)
    assert len(settings(seen)) == count


def test_an_assigned_setting_is_recorded_with_its_line():
    with watched() as seen:
        torch.backends.cudnn.deterministic = True
        is_on = torch.backends.cudnn.deterministic
        torch.backends.cudnn.deterministic = False
    assert is_on
    assert settings(seen) == [("torch.backends.cudnn.deterministic", "torch.backends.cudnn.deterministic = True")]


def test_a_setting_that_was_on_before_has_no_line():
    torch.autograd.set_detect_anomaly(True)
    with watched() as seen:
        torch.autograd.set_detect_anomaly(False)
    assert [event.line for event in seen.of(EventKind.SETTING)] == [-1]


def test_the_profiler_is_recorded_while_it_records():
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with watched() as seen:
        with torch.profiler.profile(schedule=schedule) as profiler:
            waiting = len(settings(seen))
            for _ in range(6):
                torch.ones(3).sum()
                profiler.step()
        found = settings(seen)
    assert waiting == 0
    assert found == [("torch.profiler", "profiler.step()")]
    assert profiler.key_averages()


def test_a_search_for_unused_parameters_is_recorded(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with watched() as seen:
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), find_unused_parameters=True)
    finally:
        distributed.destroy_process_group()
    assert [api for api, _ in settings(seen)] == ["DistributedDataParallel(find_unused_parameters=True)"]


def test_data_parallel_on_one_device_is_not_recorded():
    with watched() as seen:
        torch.nn.DataParallel(torch.nn.Linear(2, 2))
    assert settings(seen) == []


def test_a_sample_shows_that_anomaly_mode_stores_a_stack(monkeypatch):
    found, functions, extract = [], CalledFunctions(SourceLines()), traceback.extract_stack

    def sample():
        found.append(functions.find(sys._getframe(1))[1])
        return extract()

    monkeypatch.setattr(traceback, "extract_stack", sample)
    with torch.autograd.set_detect_anomaly(True):
        torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
    assert set(found) == {STORED_STACK}


def test_the_functions_of_pytorch_are_restored():
    before = torch.set_anomaly_enabled, torch.use_deterministic_algorithms
    with watched():
        assert torch.set_anomaly_enabled is not before[0]
    assert (torch.set_anomaly_enabled, torch.use_deterministic_algorithms) == before


def ignore(frame, event, argument):
    return None


@pytest.mark.parametrize("trace", [ignore, None])
def test_a_loop_that_is_traced_has_the_setting(trace):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    session = Session(StepDetector(steps=10, warm_up=2, wait_seconds=0.0, sample_seconds=0.0, short_seconds=0.0))
    before = sys.gettrace()
    session.start()
    sys.settrace(trace)
    try:
        for _ in range(2000):
            optimizer.step()
    finally:
        sys.settrace(before)
        session.stop()
    recorded = [event.api for event in session.ledger.events if event.kind == EventKind.SETTING]
    assert recorded == (["sys.settrace"] if trace else [])
