"""Outcomes of cures that compile a step or group steps, as changes of a timeline.

Each function returns one change of the timeline per outcome, the best and the worst; its docstring describes the cure.
"""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.eager_time import EagerTime
from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.analyse.phases import PHASES, parts_of_step
from forebay.doctor.analyse.step_parts import COMPUTING
from forebay.doctor.analyse.steps import REST
from forebay.doctor.predict import call_changes, changes
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.cure_changes import remove_work
from forebay.doctor.predict.outcomes import Changes, choose_outcomes

__all__ = [
    "CallingTime",
    "compile_eager_step",
    "compile_model",
    "compile_part",
    "compile_step",
    "compile_step_with_xla",
    "group_jax_steps",
    "group_keras_steps",
    "move_to_gpu",
    "run_keras_steps",
    "unroll_recurrence",
]

GRAPH_SECONDS = 5e-7  # host time per operation of a CUDA graph
# Host time to call a jitted function, at best and at worst. 90 % of the calls with ten arrays took 0.25 to 0.6 ms. On
# an H200, whole jitted steps with four to ten arrays took 0.10 to 0.14 ms (2026-11-19).
JITTED_CALL_SECONDS = 1.5e-4, 4.5e-4
# Host time of a tf.function, at best and at worst. TensorFlow's executor launches kernels one by one. Measured calls
# without waits took 0.9 to 1.4 ms with 36 to 43 kernels, and 3.3 ms with 428 kernels. Whole steps on an H200
# (2026-11-19) took 0.66 ms with 19 kernels, 1.16 ms with 58 kernels, and 4.2 ms with 437 kernels.
TF_FUNCTION_SECONDS = 4.5e-4, 6.5e-4  # per call
TF_KERNEL_SECONDS = 5.5e-6, 7.5e-6  # per kernel
# TensorFlow with XLA, at best and at worst. Measured on an H200 (2026-11-19) as ms per step, ms of it in kernels, ms
# per step with XLA: linear regression 3.4, 0.02, 0.13; autoencoder with eager Adam 42, 2.3, 1.7; Pix2Pix 23, 8.3, 6.0.
XLA_CALL_SECONDS = 1e-4, 2.5e-4  # host time per call
XLA_DEVICE_SHARES = 0.6, 0.85  # share of the device time that remains
# Time of a tf.function on the CPU in addition to TF_FUNCTION_SECONDS, at best and at worst. Measured on two cores,
# without XLA; TensorFlow ran independent operations in parallel.
TF_OPERATION_SECONDS = 2e-6, 6e-6  # per eager operation that becomes part of the graph
TF_COMPUTING_SHARES = 0.6, 1.0  # share of the computing time of eager operations that remains in the graph
JAX_STEPS_PER_CALL = 50
# Launch time in a loop of `jax.lax.scan`, at best and at worst. The loop launches kernels one by one. Measured on an
# H200 (2026-11-18): a step with 10 kernels took 21 us, 9 us of it in kernels; a step with 58 us in kernels took 80 us.
SCANNED_KERNEL_SECONDS = 1.2e-6, 1.8e-6  # per kernel
# Keras on TensorFlow, at best and at worst. Measured on an H200 (2026-11-17 and 18) with batches of 32 or 64 rows, in
# ms per step. Three dense layers: 1.55, 0.78 with 50 steps per call, 0.79 with a feed, 0.41 with both. Two dense
# layers: 2.17, 0.45 with both. Two embeddings: 1.48, 0.76 with both. LSTM: 6.40, 4.97 with 50 steps per call.
KERAS_STEPS_PER_CALL = 50
KERAS_CALL_SECONDS = 3.5e-4, 5.5e-4  # per call of the training function
KERAS_ARRAYS_SECONDS = 2.8e-4, 4.5e-4  # per batch that Keras takes from arrays
# The recorded time of launching and computing includes the call, so `run_keras_steps` subtracts KERAS_CALL_SECONDS from
# it. At least this share of the recorded time remains, at best and at worst.
KERAS_EXECUTOR_SHARES = 0.57, 0.7
# On the CPU, 50 steps per call also save time inside of the compiled call, which prepares arguments and results and
# wakes threads: this share of the call, at best and at worst. Measured on two busy cores (2026-11-18) with Keras 3.15
# and batches of 64 rows, as ms per step, ms of it in the call, ms per step with 50 steps per call, and the saved share
# of the call: two dense layers 2.23, 1.65, 1.07, 0.36; four dense layers 2.64, 1.95, 1.49, 0.25; an embedding 2.63,
# 1.98, 1.84, 0.08; two convolutions 7.85, 7.32, 5.07, 0.31; wide dense layers 8.50, 7.33, 4.27, 0.42.
KERAS_CALL_SHARES = 0.4, 0.2
# Most seconds that KERAS_CALL_SHARES save at worst: what two convolutions of 7.9 ms saved on two idle cores
# (2026-11-17).
MAX_CERTAIN_SAVING = 1.2e-3
# Share of the launch time that remains with torch.compile, at best and at worst. Measured on an H200 (2026-11-17): 0.44
# for a small transformer with mode="reduce-overhead", which shortened its step from 9.9 to 4.9 ms.
COMPILED_LAUNCH_SHARES = 0.35, 0.55
# A step that moves from the CPU to a GPU, at best and at worst: host seconds per step, and seconds per operator. With a
# CUDA graph of the whole step and the copy of the batch, small networks took 30 to 220 us on an H200 (2026-11-19).
GPU_GRAPH_SECONDS = (5e-5, 1e-4), (1.5e-6, 2.5e-6)
GPU_EAGER_SECONDS = (1e-4, 3e-4), (6e-6, 1.5e-5)
GPU_FLOPS_PER_SECOND = 3e13, 3e12  # what small products reach, at best and at worst
# Share of the device time that remains at best, if a compiler fuses the operations between matrix products.
FUSED_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class CallingTime:
    """Limits of the seconds per step in which Python code calls operations."""

    min_seconds: float
    max_seconds: float


def compile_step(view: CaptureView, framework: str, calling: CallingTime) -> Changes:
    """Compile the step into one call: a graph of its operations, or a fused program.

    Without device records, compiling removes the time of calling operations: at best `calling.max_seconds`, at worst
    half of `calling.min_seconds`. For JAX, the worst is all of `calling.min_seconds`, because no Python code runs
    inside of a jitted function.
    """
    # Each outcome has host seconds per operation, a share of the device time, and host seconds per step.
    if framework in ("tensorflow", "keras"):
        outcomes = [
            (per_kernel, 1.0, per_step)
            for per_kernel, per_step in zip(TF_KERNEL_SECONDS, TF_FUNCTION_SECONDS, strict=True)
        ]
    elif framework == "jax":
        outcomes = [
            (0.0, share, per_step) for share, per_step in zip((FUSED_SHARE, 1.0), JITTED_CALL_SECONDS, strict=True)
        ]
    else:
        outcomes = [(GRAPH_SECONDS, share, 0.0) for share in ((1.0,) if framework == "torch" else (1.0, FUSED_SHARE))]
    return choose_outcomes(
        view,
        lambda speeds: tuple(
            changes.launch_as_graph(seconds_per_operation=per_operation, device_share=share, seconds_per_step=per_step)
            for per_operation, share, per_step in outcomes
        ),
        lambda: remove_work(
            view,
            calling.max_seconds,
            least=calling.min_seconds if framework == "jax" else calling.min_seconds / 2,
            kinds=("work", "transform"),
        ),
    )


def compile_step_with_xla(view: CaptureView) -> Changes:
    """Compile the step of a TensorFlow script into one program of XLA, which launches few kernels."""
    outcomes = zip(XLA_CALL_SECONDS, XLA_DEVICE_SHARES, strict=True)
    return tuple(
        changes.launch_as_graph(seconds_per_operation=0.0, device_share=share, seconds_per_step=per_step)
        for per_step, share in outcomes
    )


def unroll_recurrence(view: CaptureView) -> Changes:
    """Run recurrent layers without a loop: at best in the time of other layers, at worst without a gain."""
    graph = changes.launch_as_graph(seconds_per_operation=TF_KERNEL_SECONDS[0], seconds_per_step=TF_FUNCTION_SECONDS[0])
    return graph, call_changes.unchanged


def compile_eager_step(view: CaptureView, framework: str, calling: CallingTime, time: EagerTime | None) -> Changes:
    """Compile a step of eager operations.

    `time` is an estimate from host samples; None if there are too few samples. For TensorFlow, it contains the time of
    the framework. A graph needs only the computing part of this time, and a little time per operation. All other work
    of the script remains.
    """
    if time is None or framework not in ("tensorflow", "keras"):
        return compile_step(view, framework, calling)
    if view.device is not None:
        costs = zip(TF_KERNEL_SECONDS, TF_FUNCTION_SECONDS, strict=True)
        return tuple(
            changes.chain((_launch_all_as_graph(per_kernel, per_step), changes.add_work(time.other_seconds)))
            for per_kernel, per_step in costs
        )
    if time.computing is None:
        return compile_step(view, framework, calling)
    outcomes = zip(TF_OPERATION_SECONDS, TF_COMPUTING_SHARES, TF_FUNCTION_SECONDS, strict=True)
    kept = [time.operations * each + time.computing * share + per_step for each, share, per_step in outcomes]
    return tuple(changes.remove_work(max(0.0, time.seconds - seconds)) for seconds in kept)


def compile_part(view: CaptureView, calling: CallingTime) -> Changes:
    """Compile a part of the step, which removes the time of calling its operations.

    At best, this is `calling.max_seconds`; at worst, half of `calling.min_seconds`.
    """
    return remove_work(view, calling.max_seconds, least=calling.min_seconds / 2, kinds=("work", "transform"))


def _launch_all_as_graph(seconds_per_kernel: float, seconds_per_step: float) -> Change:
    return changes.launch_as_graph(
        seconds_per_operation=seconds_per_kernel, seconds_per_step=seconds_per_step, longest_launch=float("inf")
    )


def compile_model(view: CaptureView) -> Changes:
    """Compile a PyTorch model. COMPILED_LAUNCH_SHARES of the launch time remain, at best and at worst."""
    return tuple(changes.scale_launches(share) for share in COMPILED_LAUNCH_SHARES)


def run_keras_steps(view: CaptureView, *, is_grouped: bool, is_fed: bool) -> Changes:
    """Let Keras on TensorFlow make many steps per call, or take batches from a feed.

    `is_grouped` selects the first change, and `is_fed` the second; both may be set. Without a feed, each step also
    takes a batch from the pipeline that Keras builds for arrays.
    """
    steps_per_call = KERAS_STEPS_PER_CALL if is_grouped else 1
    executing = view.step_parts.get(LAUNCHING, 0.0) + view.step_parts.get(COMPUTING, 0.0)
    outcomes = zip(KERAS_CALL_SECONDS, KERAS_ARRAYS_SECONDS, KERAS_EXECUTOR_SHARES, strict=True)
    per_step = [
        call / steps_per_call + (0.0 if is_fed else arrays) + max(executing * share, executing - call)
        for call, arrays, share in outcomes
    ]
    return tuple(
        changes.chain(
            (changes.remove_waits, changes.launch_as_graph(seconds_per_operation=0.0, seconds_per_step=seconds))
        )
        for seconds in per_step
    )


def group_jax_steps(view: CaptureView, making: float) -> Changes:
    """Let JAX make JAX_STEPS_PER_CALL steps per call.

    For each step, the host still needs `making` seconds to make the batch.
    """
    assert view.device is not None
    call = JITTED_CALL_SECONDS[0] / JAX_STEPS_PER_CALL
    outcomes = [call + view.device.kernels_per_step * seconds for seconds in SCANNED_KERNEL_SECONDS]
    scans = [
        changes.launch_as_graph(seconds_per_operation=0.0, seconds_per_step=each, longest_launch=view.step_seconds)
        for each in outcomes
    ]
    return tuple(changes.chain((changes.remove_waits, scan, changes.add_work(making))) for scan in scans)


def group_keras_steps(view: CaptureView, outside: float) -> Changes:
    """Let Keras make KERAS_STEPS_PER_CALL steps per call on the CPU.

    Now, Keras spends `outside` seconds per step outside of the compiled call. After the change, it spends them once per
    call. This also saves KERAS_CALL_SHARES of the time inside of the call.
    """
    seconds, total = outside * (1 - 1 / KERAS_STEPS_PER_CALL), sum(view.host_parts.values())
    inside = view.step_seconds * view.host_parts["compiled calls"] / total if total else 0.0
    best, worst = (inside * share for share in KERAS_CALL_SHARES)
    return tuple(
        changes.chain((changes.remove_work(seconds, ("work", "download")), changes.remove_work(saved, ("run",))))
        for saved in (best, min(worst, MAX_CERTAIN_SAVING))
    )


def move_to_gpu(view: CaptureView, operators: int, flops: float, *, is_graph: bool) -> Changes:
    """Move a PyTorch step from the CPU to a GPU.

    `operators` and `flops` are those of a step. With `is_graph`, one CUDA graph launches them. At best, all work of the
    loop moves, except its waits for input; at worst, only the forward pass, the backward pass and the optimizer.
    """
    per_step, per_operator = GPU_GRAPH_SECONDS if is_graph else GPU_EAGER_SECONDS
    parts = parts_of_step(view)
    least = sum(parts.get(phase, 0.0) for phase in PHASES)
    outcomes = zip((least + parts.get(REST, 0.0), least), per_step, per_operator, GPU_FLOPS_PER_SECOND, strict=True)
    return tuple(
        changes.remove_work(max(0.0, moved - step - operators * each - flops / rate))
        for moved, step, each, rate in outcomes
    )
