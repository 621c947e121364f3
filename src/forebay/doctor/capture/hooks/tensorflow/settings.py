"""Hooks for TensorFlow's debug settings, and for `tf.print` in compiled functions.

Both slow down every step.
"""

from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.profiler import profiler_v2

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.hooks.switches import SettingSpans, Switch, always, first_argument, never
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.debug_settings import DebugSetting

__all__ = ["SWITCHES", "hook_settings"]

_DATA_FUNCTION = "Dataset_"  # start of the names that tf.data gives to the graphs of its functions


def _print_state(*_: Any, **__: Any) -> bool | None:
    """Return True while TensorFlow traces a compiled function, so that each of its calls prints.

    Return None in eager code, in a branch inside a graph, and in a function of tf.data.
    """
    graph: Any = None if tf.executing_eagerly() else ops.get_default_graph()
    is_step = type(graph) is func_graph.FuncGraph and not str(graph.name).startswith(_DATA_FUNCTION)
    return True if is_step else None


SWITCHES = (
    Switch(DebugSetting.CHECK_NUMERICS, tf.debugging, "enable_check_numerics", always),
    Switch(DebugSetting.CHECK_NUMERICS, tf.debugging, "disable_check_numerics", never),
    Switch(DebugSetting.DUMP_DEBUG_INFO, tf.debugging.experimental, "enable_dump_debug_info", always),
    Switch(DebugSetting.DUMP_DEBUG_INFO, tf.debugging.experimental, "disable_dump_debug_info", never),
    Switch(DebugSetting.OP_DETERMINISM, tf.config.experimental, "enable_op_determinism", always),
    Switch(DebugSetting.LOG_PLACEMENT, tf.debugging, "set_log_device_placement", first_argument),
    Switch(DebugSetting.DATA_DEBUG_MODE, tf.data.experimental, "enable_debug_mode", always),
    Switch(DebugSetting.FUNCTIONS_EAGER, tf.config, "run_functions_eagerly", first_argument),
    *(Switch(DebugSetting.TF_PROFILER, owner, "start", always) for owner in (tf.profiler.experimental, profiler_v2)),
    *(Switch(DebugSetting.TF_PROFILER, owner, "stop", never) for owner in (tf.profiler.experimental, profiler_v2)),
    Switch(DebugSetting.TF_PRINT, tf, "print", _print_state),
)
_PRINT = SWITCHES[-1]


def hook_settings(patches: Patches) -> None:
    spans = SettingSpans(patches)
    spans.hook(*SWITCHES[:-1])
    patches.replace(tf, "print", partial(_hook_print, patches, spans), api=_PRINT.setting)
    spans.switch(DebugSetting.FUNCTIONS_EAGER, tf.config.functions_run_eagerly() or None, line=-1)


def _hook_print(patches: Patches, spans: SettingSpans, original: Any) -> Any:
    """Return a hook that records `tf.print` at the line of its operation.

    The stack does not show this line, because AutoGraph runs a copy of the user's function.
    """

    def record(operation: Any) -> None:
        frames = ((frame.filename, frame.lineno, frame.name) for frame in reversed(list(operation.traceback)))
        spans.switch(_PRINT.setting, True, line=patches.ledger.lines.first_user_line(frames))

    def hook(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if _print_state():
            run_guarded(patches.ledger, _PRINT.setting, record, result)
        return result

    return hook
