"""The step ends that PyTorch optimizers mark.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import gc

import pytest
import torch
from tests.doctor.capture.hooks.torch_watched import optimizer_of, watched
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import EventKind


@pytest.fixture
def seen():
    with watched() as seen:
        yield seen


def test_a_step_ends_at_the_line_of_the_optimizer_step(seen):
    optimizer = optimizer_of(3)
    optimizer.step()
    (step,) = seen.of(EventKind.STEP)
    assert (step.api, seen.line(step).text) == ("optimizer.step", "optimizer.step()")


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_first_step_has_the_settings_of_the_optimizer_and_the_layout_of_images(seen, channels_last):
    layer = torch.nn.Conv2d(3, 4, 3)
    if channels_last:
        layer = layer.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.step()
    optimizer.step()
    first, second = seen.of(EventKind.STEP)
    assert first.detail == {"optimizer": "SGD", "fused": False, "channels_last": channels_last}
    assert second.detail is None


def test_a_fused_optimizer_is_recorded_as_such(seen):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    torch.optim.Adam([parameter], fused=True).step()
    (step,) = seen.of(EventKind.STEP)
    assert step.detail == {"optimizer": "Adam", "fused": True, "channels_last": False}


def test_two_optimizers_in_turn_record_one_step_per_turn(seen):
    first, second = optimizer_of(3), optimizer_of(4)
    for _ in range(5):
        first.step(), second.step()
    assert len(seen.of(EventKind.STEP)) == 5


def test_another_optimizer_marks_steps_when_the_first_is_idle(seen):
    first, second = optimizer_of(3), optimizer_of(4)
    first.step()
    for _ in range(20):
        second.step()
    # The second optimizer ends no step in the seven calls before MAX_OTHER_CALLS.
    assert len(seen.of(EventKind.STEP)) == 1 + 20 - 7


def test_another_optimizer_marks_steps_at_once_if_the_first_is_deleted(seen):
    first = optimizer_of(3)
    first.step()
    del first
    gc.collect()
    optimizer_of(4).step()
    assert len(seen.of(EventKind.STEP)) == 2


def test_a_step_through_a_gradient_scaler_is_one_step(seen):
    optimizer = optimizer_of(3)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(optimizer.param_groups[0]["params"][0].sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert len(seen.of(EventKind.STEP)) == 1
    assert seen.apis(EventKind.DOWNLOAD) == []


def test_profiling_that_ends_inside_a_step_keeps_hooks_of_other_code():
    calls = []
    session = Session(StepDetector(warm_up=1, steps=1, untraced_steps=1, short_seconds=0.0), records_history=False)
    session.start()
    other_hook = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: calls.append(optimizer))
    optimizer = optimizer_of(3)
    for _ in range(6):
        optimizer.step()
    other_hook.remove()
    optimizer.step()
    session.stop()
    assert (len(calls), len(_global_optimizer_post_hooks)) == (6, 0)
    assert session.detector.phase == "done"
    assert len([event for event in session.ledger.events if event.kind == EventKind.STEP]) == 4


def test_the_step_hook_is_removed_when_profiling_ends_inside_a_step():
    session = Session(StepDetector(warm_up=1, steps=1, untraced_steps=1, short_seconds=0.0), records_history=False)
    session.start()
    optimizer = optimizer_of(3)
    for _ in range(6):
        optimizer.step()
    assert not _global_optimizer_post_hooks
    session.stop()
