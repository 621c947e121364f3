"""What the rule of memory-bound kernels states, and which cures it offers."""

from dataclasses import replace

import pytest
from tests.doctor.captures import JAX, TENSORFLOW_GPU
from tests.doctor.device_rig import running_ahead, without_unfinished
from tests.doctor.rules.device_faults import ADD, ADD16, FUSION, GELU, TF32, run_with_kernels, waiting
from tests.support.paths import DOCTOR

from forebay.doctor.analyse.kernel_kinds import is_unfused_update
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.rules.memory_bound import examine
from forebay.doctor.rules.registry import view_for_rules

ADAM = (
    "_ZN2at6native54_GLOBAL__N__f8a10d72_21_ForeachPointwiseOp_cu_ef478fac25multi_tensor_apply_kernelI"
    "NS1_18TensorListMetadataILi4EEENS1_28PointwiseOpScalarListFunctorIfLi4ELi3ELi0EEEJSt4plusIfEEEEvT_T0_DpT1_"
)
FUSED_ADAM = ADAM.replace("28PointwiseOpScalarListFunctor", "20FusedAdamMathFunctor")
LAYOUT = "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t0EEEv"
BLOCKS = (16_384, 1, 1)  # of an addition of 4096 x 4096 numbers, which takes an H200 47 microseconds
# Seconds of a step on an H200 with the cure. `torch_chain` has residual blocks of layer norm, GELU and products;
# `torch_adam` updates 100 million parameters with AdamW.
MEASURED = {
    ("torch_chain", "let a compiler fuse these kernels"): 2.984e-3,
    ("torch_chain", "compute in bfloat16"): 6.169e-3,
    ("torch_adam", "update all parameters in one pass"): 1.846e-3,
}
H200 = [{"name": "NVIDIA H200", "samples": []}]
SPEED = "4.3 TB/s (estimated from kernels that take 100% of this time)"


def step_of(*kernels, gpu=H200, **facts):
    """Return the capture of a step with kernels, given as (name, microseconds)."""
    names, durations = zip(*kernels, strict=True)
    capture = run_with_kernels(waiting(*durations), *names, grids=(BLOCKS,))
    return replace(capture, facts=capture.facts | {"gauges": gpu} | facts, versions={"torch": "2.11.0"})


def titles(capture):
    return [cure.title for finding in examine(view_for_rules(capture)) for cure in finding.cures]


def evidence(capture):
    (finding,) = examine(view_for_rules(capture))
    return finding.evidence


def test_the_evidence_states_shares_and_estimates():
    capture = step_of((ADD, 47), (GELU, 47), (TF32, 53), arithmetic={"flops_per_step": 2e10, "source": "shapes"})
    (finding,) = examine(view_for_rules(capture))
    assert finding.title == "Memory-bound kernels take 64% of the device's time"
    kinds, bandwidth, arithmetic = finding.evidence
    assert kinds == "They take 94.0 us per step: elementwise 100%."
    assert bandwidth == f"They reach {SPEED}, 89% of the peak bandwidth."
    assert arithmetic.startswith("Model FLOPs utilisation: ")
    assert arithmetic.endswith(" of the bfloat16 peak (estimated: 0.02 TFLOP per step, from shapes).")


def test_the_evidence_says_which_numbers_are_unknown():
    _, unknown_bytes, unknown_flops = evidence(step_of(("Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", 47)))
    assert unknown_bytes == "The bytes of these kernels are not known."
    assert unknown_flops == "The model FLOPs utilisation is not known."
    _, unknown_peak, _ = evidence(step_of((ADD, 47), gpu=[]))
    assert unknown_peak == f"They reach {SPEED}. The peak of this GPU is not known."


def test_the_bytes_of_fusions_come_from_the_compiled_programs_of_jax():
    nbytes = 3 * 4 * 4096 * 4096
    known = evidence(step_of(("loop_add_fusion", 47), kernels={"loop_add_fusion": nbytes}))
    assert known[1] == f"They reach {SPEED}, 89% of the peak bandwidth."


def test_an_impossible_number_of_bytes_is_unknown():
    impossible = evidence(step_of(("loop_add_fusion", 47), kernels={"loop_add_fusion": 1 << 40}))
    assert impossible[1].startswith("The bytes of these kernels are not known")


def test_a_fused_loop_in_float32_may_still_use_16_bits():
    assert titles(step_of((FUSION, 47))) == ["compute in bfloat16"]


def test_a_fused_loop_in_16_bits_has_no_cure():
    assert titles(step_of((FUSION, 47), (ADD16, 47))) == []


def test_bfloat16_is_not_offered_on_a_gpu_without_it():
    assert titles(step_of((FUSION, 47), gpu=[{"name": "Tesla T4", "samples": []}])) == []


def test_changes_of_the_layout_are_cured_by_channels_last():
    assert "store images with the channels last" in titles(step_of((ADD, 47), (LAYOUT, 47)))
    assert "store images with the channels last" not in titles(step_of((ADD, 47), (LAYOUT, 4)))


def test_a_step_whose_kernels_the_device_runs_much_later_is_found():
    """The host needs 0.4 ms to queue 2.4 ms of work, as in the example of this rule on an H200."""
    program = running_ahead(*[100] * 24, host_us=17)
    capture = without_unfinished(run_with_kernels(program, ADD, GELU, grids=(BLOCKS,)))
    assert diagnose(capture).main.rule == "memory_bound"


@pytest.mark.parametrize(("name", "offered"), [(ADAM, True), (FUSED_ADAM, False)])
def test_a_fused_optimizer_is_offered_unless_the_script_has_one(name, offered):
    assert ("update all parameters in one pass" in titles(step_of((ADD, 47), (name, 47)))) == offered


def test_a_compiled_function_in_the_loop_is_not_compiled_again():
    capture = step_of((ADD, 47))
    calls = [
        LedgerEvent(EventKind.RUN, "torch.compile", event.line, event.thread, event.start - 1, event.start)
        for event in capture.events
        if event.kind == EventKind.STEP
    ]
    assert titles(capture)[0] == "let a compiler fuse these kernels"
    assert titles(replace(capture, events=(*capture.events, *calls))) == ["compute in bfloat16"]


def without_torch(capture):
    """Return the capture as if batches ended its steps: without optimizer steps and waits of PyTorch."""
    events = tuple(
        event._replace(api="batch") if event.kind == EventKind.STEP else event
        for event in capture.events
        if event.kind != EventKind.SYNC
    )
    window = replace(capture.window, anchor=("step", "batch", capture.window.anchor[2]))
    return replace(capture, events=events, window=window)


@pytest.mark.parametrize(
    ("frameworks", "code"),
    [(TENSORFLOW_GPU, "@tf.function(jit_compile=True)"), (JAX, "@jax.jit"), ({"cupy": {"gpus": 1}}, "@cupy.fuse()")],
)
def test_the_cure_is_code_of_the_framework(frameworks, code):
    capture = step_of(("cupy_add__float32_float32_float32", 47), frameworks=frameworks)
    (finding,) = examine(view_for_rules(without_torch(capture)))
    assert finding.cures[0].code.startswith(code)


def test_a_fusion_is_predicted_to_take_at_least_as_long_as_its_longest_kernel():
    diagnosis = diagnose(step_of((ADD, 400), (GELU, 600)))
    fusion = next(cure for cure in diagnosis.main.cures if cure.title == "let a compiler fuse these kernels")
    assert 350e-6 < fusion.high < 500e-6
    # At worst, the fusion takes twice as long as its longest kernel, and saves only launches.
    assert fusion.low < 20e-6


def test_without_torch_the_cure_saves_no_launches():
    capture = step_of((ADD, 400), (GELU, 600), frameworks={"cupy": {"gpus": 1}})
    (finding,) = examine(view_for_rules(without_torch(capture)))
    assert "launches" not in finding.cures[0].basis


@pytest.mark.parametrize(("script", "cure"), sorted(MEASURED))
def test_the_prediction_contains_the_step_measured_with_the_cure(script, cure):
    diagnosis = diagnose(Capture.load(DOCTOR / "rules" / f"{script}.gz"))
    assert diagnosis.main.rule == "memory_bound"
    gains = next(each for each in diagnosis.main.cures if each.title == cure)
    cured = MEASURED[script, cure]
    assert diagnosis.view.step_seconds - gains.high <= cured <= diagnosis.view.step_seconds - gains.low


def test_a_norm_of_gradients_is_not_an_unfused_update():
    assert is_unfused_update(ADAM)
    assert not is_unfused_update(FUSED_ADAM)
    assert not is_unfused_update(ADAM.replace("28PointwiseOpScalarListFunctor", "13LpNormFunctor"))
