"""Hooks for debug settings of JAX that act in every step."""

from functools import partial
from typing import Any

import jax
from jax._src import profiler

from forebay.doctor.capture.hooks.switches import ContextSwitch, SettingSpans, Switch, always, never
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.debug_settings import DebugSetting

__all__ = ["CONTEXTS", "SWITCHES", "hook_settings"]

_OPTIONS = (
    DebugSetting.DEBUG_NANS,
    DebugSetting.DEBUG_INFS,
    DebugSetting.TRACER_LEAKS,
    DebugSetting.JAX_CHECKS,
    DebugSetting.JIT_DISABLED,
)
_CONTEXTS = {
    "debug_nans": DebugSetting.DEBUG_NANS,
    "debug_infs": DebugSetting.DEBUG_INFS,
    "check_tracer_leaks": DebugSetting.TRACER_LEAKS,
    "checking_leaks": DebugSetting.TRACER_LEAKS,
    "enable_checks": DebugSetting.JAX_CHECKS,
    "disable_jit": DebugSetting.JIT_DISABLED,
}


def _option_state(option: str, config: Any, name: str, val: Any) -> bool | None:
    return bool(val) if name == option else None


# `jax.profiler` exports functions of `jax._src.profiler`. The context manager of the profiler calls those of the
# private module, so the hooks replace the functions in both modules.
SWITCHES = (
    *(Switch(option, type(jax.config), "update", partial(_option_state, option.value)) for option in _OPTIONS),
    *(Switch(DebugSetting.JAX_PROFILER, owner, "start_trace", always) for owner in (jax.profiler, profiler)),
    *(Switch(DebugSetting.JAX_PROFILER, owner, "stop_trace", never) for owner in (jax.profiler, profiler)),
)
CONTEXTS = tuple(ContextSwitch(setting, jax, name) for name, setting in _CONTEXTS.items() if hasattr(jax, name))


def hook_settings(patches: Patches) -> None:
    spans = SettingSpans(patches)
    spans.hook(*SWITCHES)
    spans.hook_contexts(*CONTEXTS)
    for option in _OPTIONS:  # the environment or an earlier notebook cell may have switched it on
        spans.switch(option, bool(getattr(jax.config, option.value, False)) or None, line=-1)
