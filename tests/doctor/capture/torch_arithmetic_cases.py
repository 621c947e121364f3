"""The recorder of floating-point operations agrees with the counter of PyTorch, and changes no result.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import os
import sys
from threading import Thread

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from forebay.doctor.capture.arithmetic import ArithmeticRecorder
from forebay.doctor.capture.op_flops import count_flops
from forebay.doctor.capture.session import Session


@pytest.fixture
def recorder():
    errors = []
    yield ArithmeticRecorder(errors.append)
    assert errors == []


def recorded(recorder, step):
    """Return the facts of the second run of a step."""
    step()
    recorder.start()
    assert recorder.is_recording
    step()
    assert recorder.stop()
    recorder.count([], ())
    return recorder.facts


def counted(step):
    """Return the operations of a step by the counter of PyTorch."""
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def linear_step():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    rows = torch.randn(32, 64, requires_grad=True)
    return lambda: model(rows).square().mean().backward()


@pytest.mark.parametrize(("optimizer", "more"), [(None, 0), (torch.optim.SGD, 1), (torch.optim.Adam, 1)])
def test_operators_that_compute_are_counted(recorder, optimizer, more):
    model = nn.Linear(64, 10)
    rows, updates = torch.randn(32, 64), optimizer(model.parameters()) if optimizer else None

    def step():
        model.weight.grad = model.bias.grad = None
        model(rows).square().mean().backward()
        if updates is not None:
            updates.step()

    recorded(recorder, step)
    # Forward: addmm, pow, mean. Backward: fill, div, pow, mul, mul, mm, sum, and at most 4 copies of gradients.
    assert 10 + more <= recorder.operators <= 16 + more


def convolution_step():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3)
    )  # without groups: the counter of PyTorch is wrong for them
    images = torch.randn(4, 3, 32, 32, requires_grad=True)
    return lambda: model(images).square().mean().backward()


def products_step():
    left, right = torch.randn(6, 32, 16, requires_grad=True), torch.randn(6, 16, 8, requires_grad=True)
    return lambda: torch.einsum("bij,bjk->bik", left, right).sum().backward()


@pytest.mark.parametrize("make", [linear_step, convolution_step, products_step])
def test_the_operations_of_a_step_are_those_of_the_counter_of_pytorch(recorder, make):
    step = make()
    facts = recorded(recorder, step)
    assert facts["flops_per_step"] == counted(step) > 0
    assert facts["source"] == "the shapes of the operators of one step"


def test_forward_attention_has_the_operations_of_the_counter_of_pytorch():
    shapes = [(2, 4, 128, 64), (2, 4, 256, 64), (2, 4, 256, 64)]
    formula = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention]
    name = "aten::_scaled_dot_product_flash_attention"
    assert count_flops([(name, shapes)]) == formula(
        *(torch.empty(shape, device="meta") for shape in shapes), out_val=None
    )


def test_a_step_without_products_has_no_facts(recorder):
    numbers = torch.randn(100)
    assert recorded(recorder, lambda: numbers.add(1).tanh()) is None


def test_results_are_the_same_and_the_profiler_is_off_afterwards(recorder):
    rows, weights = torch.randn(8, 8), torch.randn(8, 8)
    expected = functional.gelu(rows @ weights)
    recorder.start()
    seen = functional.gelu(rows @ weights)
    recorder.stop()
    assert torch.equal(seen, expected)
    assert not torch._C._autograd._profiler_enabled()


def test_a_profiler_of_the_script_is_left_alone(recorder):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        recorder.start()
        assert not recorder.is_recording
        torch.ones(3).add(1)
    assert any(event.name == "aten::add" for event in profiler.events())


def test_another_thread_does_not_stop_the_recorder(recorder):
    stopped = []
    recorder.start()
    thread = Thread(target=lambda: stopped.append(recorder.stop()))
    thread.start()
    thread.join()
    assert stopped == [False]
    assert recorder.is_recording
    assert recorder.stop()


def test_a_forked_process_does_not_record_its_operators(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    session = Session()
    session.start()
    try:
        session._arithmetic.start()
        child = os.fork()
        if not child:
            os._exit(int(torch._C._autograd._profiler_enabled()))
        assert os.waitpid(child, 0)[1] == 0
        assert torch._C._autograd._profiler_enabled()
    finally:
        session.stop()
    assert not torch._C._autograd._profiler_enabled()


def test_a_process_without_pytorch_is_not_recorded(recorder, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    recorder.start()
    assert not recorder.is_recording


def test_a_compiled_function_is_not_compiled_again(recorder):
    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return graph.forward

    function = torch.compile(lambda rows, weights: (rows @ weights).tanh(), backend=backend)
    rows, weights = torch.randn(16, 32), torch.randn(32, 8)
    facts = recorded(recorder, lambda: function(rows, weights))
    function(rows, weights)
    assert len(compilations) == 1
    assert facts["flops_per_step"] == 2 * 16 * 32 * 8
