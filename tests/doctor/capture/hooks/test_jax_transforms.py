"""A gradient that JAX runs operation by operation: its finding, its line and the gain of a compiled step."""

import pytest
from tests.doctor import device_rig as rig
from tests.doctor.captures import JAX, happening, loop, ops, run

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import EventKind

KERNELS, KERNEL_US = 80, 10
GRADIENT, LAYER = 6, 4  # lines
JAX_GPU = {"jax": {"gpus": 1, "devices": 1, "jit_disabled": False}}


def gradient(ms, *inside):
    return happening(EventKind.TRANSFORM, "jax.grad", ms, line=GRADIENT, function="loss").containing(*inside)


def operations(count, ms, **given):
    return ops(count, ms, api="jax operations", calling_seconds=ms / 1e3, **given)


def by_operations(machine, *, python_us=400):
    """Compute a gradient operation by operation, with Python work before each kernel."""
    began = machine.now
    for _ in range(KERNELS):
        machine.python(python_us)
        machine.launch(KERNEL_US, host_us=20)
    machine._event(EventKind.TRANSFORM, "jax.grad", GRADIENT, began)
    detail = {"count": KERNELS, "tiny": 0, "calling_seconds": KERNELS * 20e-6}
    machine._event(EventKind.OPS, "jax operations", LAYER, machine.now - 20 * rig.US, 0, detail)


def compiled(machine):
    """Launch the same kernels from a compiled step."""
    machine.python(20)
    for _ in range(KERNELS):
        machine.launch(KERNEL_US, host_us=0.5)


def main_of(capture):
    return diagnose(capture).main


def test_the_finding_has_the_line_of_the_gradient_call():
    inside = operations(60, 2, line=LAYER), operations(20, 1, line=GRADIENT)
    found = main_of(loop(gradient(9, *inside), frameworks=JAX))
    assert (found.rule, found.line.number) == ("eager", GRADIENT)
    assert "@jax.jit" in found.cures[0].code


def test_the_time_of_tracing_is_part_of_the_cost():
    found = main_of(loop(gradient(9, operations(60, 2, line=LAYER)), frameworks=JAX))
    assert found.seconds == pytest.approx(7e-3, rel=0.02)


def test_many_small_operations_of_a_gradient_are_not_a_loop_over_elements():
    inside = operations(600, 2, line=GRADIENT, tiny=600)
    assert main_of(loop(gradient(9, inside), frameworks=JAX)).rule == "eager"


def test_a_gradient_of_few_long_operations_has_no_finding():
    long_operations = ops(12, 8.8, api="jax operations", line=LAYER, calling_seconds=1e-4)
    assert main_of(loop(gradient(9, long_operations), frameworks=JAX)) is None


def test_a_loop_with_a_compiled_step_has_no_finding():
    every_tenth = happening(EventKind.TRANSFORM, "jax.grad", 1, line=GRADIENT, every=10)
    assert main_of(loop(run("jax.jit", 9), every_tenth, frameworks=JAX)) is None


@pytest.mark.slow
@pytest.mark.parametrize("python_us", [50, 400, 2_000])
def test_the_predicted_time_of_a_compiled_step_contains_the_true_time(python_us):
    capture = rig.run(lambda machine: by_operations(machine, python_us=python_us), frameworks=JAX_GPU)
    diagnosis = diagnose(capture)
    best, expected = diagnosis.main.cures[0], rig.step_seconds(compiled)
    fast, slow = (diagnosis.view.step_seconds - gain for gain in (best.high, best.low))
    assert diagnosis.main.rule == "eager"
    assert fast <= expected <= slow * 1.01
    assert fast >= 0.5 * KERNELS * KERNEL_US * 1e-6


@pytest.mark.slow
def test_the_prediction_holds_without_records_of_launches():
    capture = rig.without_calls(rig.run(by_operations, frameworks=JAX_GPU))
    diagnosis = diagnose(capture)
    best, expected = diagnosis.main.cures[0], rig.step_seconds(compiled)
    assert diagnosis.view.step_seconds - best.high <= expected <= (diagnosis.view.step_seconds - best.low) * 1.05
