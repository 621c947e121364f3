"""What each debug setting does in every step, and the code that switches it off."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.rules.step_edits import without_counter

__all__ = ["EFFECTS", "VARIABLES", "Effect", "VariableEffect"]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a setting that a call switches on."""

    name: str  # as the user writes it
    verb: str  # what the setting does in every step
    code: str  # code that switches it off
    needs_gpu: bool = False  # whether it has no effect without a GPU


EFFECTS: dict[str, Effect] = {
    DebugSetting.ANOMALY: Effect(
        "Anomaly mode",
        "stores the Python stack of every operation and checks every gradient for NaN",
        "torch.autograd.set_detect_anomaly(False)",
    ),
    DebugSetting.DETERMINISTIC: Effect(
        "torch.use_deterministic_algorithms",
        "runs deterministic, often slower operations and fills all new memory",
        "torch.use_deterministic_algorithms(False)",
    ),
    DebugSetting.CUDNN_DETERMINISTIC: Effect(
        "torch.backends.cudnn.deterministic",
        "excludes the fastest convolutions",
        "torch.backends.cudnn.deterministic = False\ntorch.backends.cudnn.benchmark = True   # if shapes are constant",
        needs_gpu=True,
    ),
    DebugSetting.TORCH_PROFILER: Effect(
        "The profiler of PyTorch",
        "records every operation",
        "schedule = torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)   # profile(schedule=schedule)",
    ),
    DebugSetting.DATA_PARALLEL: Effect(
        "torch.nn.DataParallel",
        "copies the model to every GPU and runs all of them from one Python process",
        "model = torch.nn.parallel.DistributedDataParallel(model)   # start with torchrun, one process per GPU",
        needs_gpu=True,
    ),
    DebugSetting.UNUSED_PARAMETERS: Effect(
        "find_unused_parameters=True",
        "searches the whole graph for parameters without a gradient",
        "DistributedDataParallel(model, find_unused_parameters=False)   # if every parameter gets a gradient",
    ),
    DebugSetting.DEBUG_NANS: Effect(
        "jax_debug_nans",
        "reads back every result of a jitted function to look for NaN",
        'jax.config.update("jax_debug_nans", False)',
    ),
    DebugSetting.DEBUG_INFS: Effect(
        "jax_debug_infs",
        "reads back every result of a jitted function to look for infinities",
        'jax.config.update("jax_debug_infs", False)',
    ),
    DebugSetting.TRACER_LEAKS: Effect(
        "jax_check_tracer_leaks",
        "traces functions again and searches for leaked tracers",
        'jax.config.update("jax_check_tracer_leaks", False)',
    ),
    DebugSetting.JAX_CHECKS: Effect(
        "jax_enable_checks",
        "lets JAX check its own internal state",
        'jax.config.update("jax_enable_checks", False)',
    ),
    DebugSetting.JAX_PROFILER: Effect(
        "The profiler of JAX",
        "records every operation",
        "jax.profiler.stop_trace()   # after a few steps",
    ),
    DebugSetting.CHECK_NUMERICS: Effect(
        "tf.debugging.enable_check_numerics",
        "checks the results of every operation for NaN and infinities",
        "tf.debugging.disable_check_numerics()",
    ),
    DebugSetting.DUMP_DEBUG_INFO: Effect(
        "tf.debugging.experimental.enable_dump_debug_info",
        "writes data about every operation to files",
        "tf.debugging.experimental.disable_dump_debug_info()",
    ),
    DebugSetting.OP_DETERMINISM: Effect(
        "tf.config.experimental.enable_op_determinism",
        "runs deterministic, often slower operations, and tf.data maps one by one",
        "# remove the call of tf.config.experimental.enable_op_determinism",
    ),
    DebugSetting.LOG_PLACEMENT: Effect(
        "tf.debugging.set_log_device_placement",
        "logs the device of every operation",
        "tf.debugging.set_log_device_placement(False)",
    ),
    DebugSetting.DATA_DEBUG_MODE: Effect(
        "tf.data.experimental.enable_debug_mode",
        "runs tf.data pipelines operation by operation in Python",
        "# remove the call of tf.data.experimental.enable_debug_mode",
    ),
    DebugSetting.TF_PROFILER: Effect(
        "The profiler of TensorFlow",
        "records every operation",
        "tf.profiler.experimental.stop()   # after a few steps; keras.callbacks.TensorBoard(profile_batch=(10, 15))",
    ),
    DebugSetting.TF_PRINT: Effect(
        "tf.print in a compiled function",
        "waits for its values and prints them",
        without_counter("tf.print(...)", 100),
    ),
    DebugSetting.TRACEMALLOC: Effect(
        "tracemalloc",
        "stores the Python stack of every allocation",
        "tracemalloc.stop()   # and unset PYTHONTRACEMALLOC",
    ),
    DebugSetting.CPROFILE: Effect(
        "cProfile",
        "times every Python function",
        "# run the script without cProfile",
    ),
    DebugSetting.TRACE: Effect(
        "A debugger or a coverage tool",
        "runs code for every line of Python",
        "python train.py   # without the debugger or `coverage run`; or sys.settrace(None) before the loop",
    ),
    DebugSetting.PROFILE: Effect(
        "A profiler of Python (sys.setprofile)",
        "runs code for every call of a function",
        "sys.setprofile(None)   # before the loop, or run the script without the profiler",
    ),
}


@dataclass(frozen=True, slots=True)
class VariableEffect:
    """The effect of an environment variable."""

    is_on: Callable[[str, Mapping[str, str]], bool]  # gets the value of the variable, and all recorded variables
    verb: str  # what the variable does in every step
    needs: str = ""  # the framework without which it has no effect, or "gpu" for a GPU


def _is_flag(value: str, _: Mapping[str, str]) -> bool:
    return value not in ("", "0")


def _is_level(value: str, _: Mapping[str, str]) -> bool:
    return value.isdecimal() and int(value[:9]) > 0


def _logs_collectives(value: str, variables: Mapping[str, str]) -> bool:
    """Whether NCCL logs every collective. With INFO alone, it logs only its start."""
    subsystems = variables.get("NCCL_DEBUG_SUBSYS", "").upper().split(",")
    return value.upper() == "TRACE" or (value.upper() == "INFO" and not {"COLL", "ALL"}.isdisjoint(subsystems))


# Variables that act only when a program starts or compiles are missing here: TORCH_LOGS, --xla_dump_to in XLA_FLAGS,
# TF_XLA_FLAGS, PYTHONPROFILEIMPORTTIME, NCCL_DEBUG=INFO.
VARIABLES = {
    "PYTHONDEVMODE": VariableEffect(_is_flag, "checks every memory block of Python"),
    "PYTHONMALLOC": VariableEffect(lambda value, _: value.endswith("debug"), "checks every memory block of Python"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": VariableEffect(_is_flag, "allocates new GPU memory for every tensor", "gpu"),
    "TORCH_DISTRIBUTED_DEBUG": VariableEffect(
        lambda value, _: value.upper() == "DETAIL", "compares every collective among all ranks", "torch"
    ),
    "NCCL_DEBUG": VariableEffect(_logs_collectives, "logs every collective", "gpu"),
    "TF_CPP_MAX_VLOG_LEVEL": VariableEffect(_is_level, "logs the inner steps of TensorFlow", "tensorflow"),
    "TF_DETERMINISTIC_OPS": VariableEffect(
        lambda value, _: value.lower() in ("1", "true"), "runs deterministic, often slower operations", "tensorflow"
    ),
    "XLA_FLAGS": VariableEffect(
        lambda value, _: "--xla_dump_hlo_snapshots" in value and "--xla_dump_hlo_snapshots=false" not in value,
        "writes the arguments and results of every compiled call to files",
    ),
}
