"""Which cure a step of many short operations gets in each framework."""

from dataclasses import replace

import pytest
from tests.doctor.captures import STEP_LINE, TENSORFLOW_GPU, loop, ops, script
from tests.doctor.device_rig import run
from tests.doctor.rules.device_faults import FEW, run_with_kernels, tiny

from forebay.doctor.model.events import EventKind
from forebay.doctor.rules import eager, faster_on_cpu, launch_bound
from forebay.doctor.rules.registry import view_for_rules

JAX_GPU = {"jax": {"gpus": 1}}
LAST_LINES = "@tf.function", "def step(x): return x", "for x in data:", "    step(x)"


def titles(rule, capture):
    return [cure.title for found in rule.examine(view_for_rules(capture)) for cure in found.cures]


def with_script(capture, *lines):
    """Return the capture of a script whose step ends at its last line."""
    return replace(capture, facts=capture.facts | script(*lines, first=STEP_LINE + 1 - len(lines)))


def test_a_compiled_step_of_jax_is_not_compiled_again():
    def program(rig):
        start = rig.now
        for _ in range(80):
            rig.launch(2, host_us=12)
        rig._event(EventKind.RUN, "jax.jit: step(state, batch)", 5, start)
        rig.read(api="float(array)")

    assert titles(launch_bound, run(program, frameworks=JAX_GPU)) == ["make 50 steps per call"]
    assert titles(launch_bound, run(tiny(80), frameworks=JAX_GPU)) == ["launch the step as one graph"]


@pytest.mark.parametrize(
    ("model", "title"),
    [("model = LSTM(8)", "unroll the recurrent layers"), ("model = Dense(8)", "launch the step as one graph")],
)
def test_xla_is_not_offered_for_recurrent_layers(model, title):
    capture = with_script(run(tiny(80), frameworks=TENSORFLOW_GPU), model, *LAST_LINES)
    assert titles(launch_bound, capture) == [title]


@pytest.mark.parametrize("line", ["ddp = DDP(model)", "init_process_group('nccl')", "model = make()"])
def test_a_distributed_script_is_not_moved_to_the_cpu(line):
    capture = with_script(run_with_kernels(tiny(20), grids=(FEW,)), line, "optimizer.step()")
    assert bool(titles(faster_on_cpu, capture)) == ("make" in line)


@pytest.mark.parametrize(
    ("operations", "step_ms", "is_reported"), [(30, 0.6, True), (30, 2.5, False), (10, 0.2, False)]
)
def test_few_operations_of_tensorflow_are_reported_if_they_take_much_of_the_step(operations, step_ms, is_reported):
    capture = loop(ops(operations, step_ms / 2), ms=step_ms, frameworks=TENSORFLOW_GPU)
    assert bool([*eager.examine(view_for_rules(capture))]) == is_reported
