"""The names that captures use for debug settings, which can slow down every step."""

from enum import StrEnum

__all__ = ["DebugSetting", "variable_of"]


class DebugSetting(StrEnum):
    """A debug setting.

    For each time that the script switches a setting on, the capture has an event of the kind `EventKind.SETTING`. The
    value of this enum is the `api` of the event.
    """

    ANOMALY = "torch.autograd.set_detect_anomaly"
    DETERMINISTIC = "torch.use_deterministic_algorithms"
    CUDNN_DETERMINISTIC = "torch.backends.cudnn.deterministic"
    TORCH_PROFILER = "torch.profiler"
    DATA_PARALLEL = "torch.nn.DataParallel"
    UNUSED_PARAMETERS = "DistributedDataParallel(find_unused_parameters=True)"
    DEBUG_NANS = "jax_debug_nans"
    DEBUG_INFS = "jax_debug_infs"
    TRACER_LEAKS = "jax_check_tracer_leaks"
    JAX_CHECKS = "jax_enable_checks"
    JIT_DISABLED = "jax_disable_jit"
    JAX_PROFILER = "jax.profiler"
    CHECK_NUMERICS = "tf.debugging.enable_check_numerics"
    DUMP_DEBUG_INFO = "tf.debugging.experimental.enable_dump_debug_info"
    OP_DETERMINISM = "tf.config.experimental.enable_op_determinism"
    LOG_PLACEMENT = "tf.debugging.set_log_device_placement"
    DATA_DEBUG_MODE = "tf.data.experimental.enable_debug_mode"
    FUNCTIONS_EAGER = "tf.config.run_functions_eagerly"
    TF_PROFILER = "tf.profiler.experimental"
    TF_PRINT = "tf.print"
    MODEL_EAGER = "Model.compile(run_eagerly=True)"
    TRACEMALLOC = "tracemalloc"
    CPROFILE = "cProfile"
    TRACE = "sys.settrace"
    PROFILE = "sys.setprofile"


# Setting -> the environment variable that switches it on.
_VARIABLES: dict[str, str] = {
    DebugSetting.DEBUG_NANS: "JAX_DEBUG_NANS",
    DebugSetting.DEBUG_INFS: "JAX_DEBUG_INFS",
    DebugSetting.TRACER_LEAKS: "JAX_CHECK_TRACER_LEAKS",
    DebugSetting.JAX_CHECKS: "JAX_ENABLE_CHECKS",
    DebugSetting.JIT_DISABLED: "JAX_DISABLE_JIT",
    DebugSetting.TRACEMALLOC: "PYTHONTRACEMALLOC",
}


def variable_of(setting: str) -> str:
    """Return the environment variable that switches a setting on.

    If no variable is known, return `setting` itself. It may already be a variable, such as `PYTHONDEVMODE`.
    """
    return _VARIABLES.get(setting, setting)
