"""Causes of allocations in the loop, the cures that fit, and warnings about retries."""

from dataclasses import replace

import pytest
from tests.doctor.captures import JAX, TENSORFLOW_GPU, TORCH_GPU, download, loop
from tests.doctor.device_rig import ApiCall
from tests.doctor.rules.device_faults import allocating, run_with_kernels
from tests.support.paths import DOCTOR

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules.allocator import examine
from forebay.doctor.rules.registry import view_for_rules


def capture_with(settings, frameworks=TORCH_GPU):
    """Return the capture of a loop that allocates, with these settings and frameworks."""
    capture = run_with_kernels(allocating(200))
    facts = capture.facts | {"settings": settings, "frameworks": frameworks}
    if frameworks is TORCH_GPU:
        return replace(capture, facts=facts)
    events = tuple(event._replace(api="batch") if event.kind == EventKind.STEP else event for event in capture.events)
    return replace(capture, facts=facts, events=events, window=replace(capture.window, anchor=("step", "batch", 39)))


def codes(capture):
    return [cure.code for finding in examine(view_for_rules(capture)) for cure in finding.cures]


@pytest.mark.parametrize(
    ("settings", "frameworks", "code"),
    [
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, JAX, "unset XLA_PYTHON_CLIENT_ALLOCATOR "),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, JAX, "unset XLA_PYTHON_CLIENT_PREALLOCATE "),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, TORCH_GPU, "unset PYTORCH_NO_CUDA_MEMORY_CACHING "),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, TENSORFLOW_GPU, "unset TF_FORCE_GPU_ALLOW_GROWTH "),
        ({}, TORCH_GPU, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, TORCH_GPU, "batch = pad(batch, length)"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, TORCH_GPU, "batch = pad(batch, length)"),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, JAX, "batch = pad(batch, length)"),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, TORCH_GPU, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ({}, {"cupy": {"gpus": 1}}, "cupy.cuda.set_allocator("),
    ],
)
def test_the_cure_fits_the_settings(settings, frameworks, code):
    (cure,) = codes(capture_with(settings, frameworks))
    assert cure.startswith(code)


def test_the_gain_is_the_time_of_the_calls():
    found = diagnose(capture_with({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})).main
    assert found.title == "Allocating device memory takes 28% of a step"
    assert found.evidence == ("2 calls per step allocate or free device memory, mostly cudaMalloc. They take 400 us.",)
    assert 300e-6 < found.cures[0].low < 399e-6 < found.cures[0].high < 500e-6


def test_a_cure_for_an_uncertain_cause_gains_at_least_half():
    cure = diagnose(capture_with({})).main.cures[0]
    assert 150e-6 < cure.low < 200e-6
    assert 399e-6 < cure.high < 500e-6


def test_a_cured_step_takes_the_busy_time_of_the_device():
    diagnosis = diagnose(Capture.load(DOCTOR / "rules" / "torch_alloc.gz"))
    assert diagnosis.main.rule == "allocator"
    cured = diagnosis.view.step_seconds - diagnosis.main.best_cure.high
    assert cured == pytest.approx(diagnosis.view.device.busy_seconds, rel=0.02)


def test_allocations_are_no_calls_that_queue_work():
    device_view = view_for_rules(run_with_kernels(allocating(200))).device
    assert set(device_view.calls["what"].tolist()) == {ApiCall.LAUNCH_KERNEL}


def readings(*retries, steps=(0, 60, 70, 130)):
    device = {"framework": "torch", "device": "cuda:0", "used_nbytes": 1}
    return [
        {"steps": number, "devices": [device | {"retries": count}]}
        for number, count in zip(steps, retries, strict=True)
    ]


def test_retries_in_the_loop_are_a_warning_if_their_cost_is_unknown():
    capture = loop(download("Tensor.item", 0.1), frameworks=TORCH_GPU, facts={"memory": readings(0, 2, 3, 14)})
    (warning,) = examine(view_for_rules(capture))
    assert warning.title == "PyTorch emptied its cache of device memory 12 times in the loop"
    assert warning.seconds == 0
    assert warning.cures[0].code.startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


@pytest.mark.parametrize("retries", [(0, 5, 5, 5), (0, None, None, None), (0, 0, 0, 0)])
def test_without_retries_after_the_first_steps_there_is_no_finding(retries):
    capture = loop(download("Tensor.item", 0.1), frameworks=TORCH_GPU, facts={"memory": readings(*retries)})
    assert [*examine(view_for_rules(capture))] == []
