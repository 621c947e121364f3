"""The phases of a step on the CPU: forward, backward and optimizer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import LINES, TORCH, download, loop, sampled

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.phases import BACKWARD, FORWARD, OPTIMIZER, parts_of_step
from forebay.doctor.analyse.steps import REST

CALLED = {
    "torch.nn.modules.module.Module._wrapped_call_impl": FORWARD,
    "torch.matmul": FORWARD,
    "torch.nn.functional.softmax": FORWARD,
    "keras.src.layers.layer.Layer.__call__": FORWARD,
    "torch._tensor.Tensor.backward": BACKWARD,
    "torch.autograd.grad": BACKWARD,
    "tensorflow.python.eager.backprop.GradientTape.gradient": BACKWARD,
    "torch.optim.adam.Adam.step": OPTIMIZER,
    "keras.src.optimizers.base_optimizer.BaseOptimizer.apply_gradients": OPTIMIZER,
    "numpy.sort": REST,
    "torch.save": REST,
    "torch.from_numpy": REST,
    "torch.utils.data.dataloader.DataLoader.__iter__": REST,
    "": REST,
}


def parts_with(*lines):
    return parts_of_step(CaptureView(sampled(loop(frameworks=TORCH), *lines)))


@pytest.mark.parametrize(("function", "phase"), CALLED.items())
def test_a_sampled_function_shows_the_phase(function, phase):
    parts = parts_with((14, function, 9), (15, "torch._tensor.Tensor.backward", 1))
    assert max(parts, key=parts.get) == phase


def test_an_operator_in_a_forward_method_belongs_to_the_forward_pass():
    capture = sampled(loop(frameworks=TORCH), (14, "", 9), (15, "torch.optim.sgd.SGD.step", 1))
    lines = [line._replace(function="Net.forward") if number == 14 else line for number, line in enumerate(LINES)]
    parts = parts_of_step(CaptureView(replace(capture, lines=tuple(lines))))
    assert max(parts, key=parts.get) == FORWARD


def test_a_step_with_only_a_forward_pass_has_no_phases():
    capture = sampled(loop(frameworks=TORCH), (14, "torch.matmul", 9))
    view = CaptureView(capture)
    assert parts_of_step(view) == view.step_parts


def test_few_samples_show_no_phases():
    capture = sampled(loop(frameworks=TORCH), (14, "torch._tensor.Tensor.backward", 9))
    view = CaptureView(replace(capture, samples=capture.samples[:19]))
    assert parts_of_step(view) == view.step_parts


@given(st.lists(st.tuples(st.integers(-1, 30), st.sampled_from(sorted(CALLED)), st.floats(0.01, 50)), max_size=4))
def test_all_parts_take_the_same_time_as_without_phases(lines):
    view = CaptureView(sampled(loop(download("Tensor.item", 2), frameworks=TORCH), *lines))
    parts = parts_of_step(view)
    assert sum(parts.values()) == pytest.approx(sum(view.step_parts.values()))
    assert min(parts.values()) >= 0.0
