"""Hooks for debug settings and wrappers of PyTorch that act in every step."""

from typing import Any

import torch
from torch.autograd import profiler
from torch.nn.parallel import DataParallel, DistributedDataParallel

from forebay.doctor.capture.hooks.switches import SettingSpans, Switch, always, first_argument, never
from forebay.doctor.capture.hooks.torch.call_hooks import TorchHooks
from forebay.doctor.model.debug_settings import DebugSetting

__all__ = ["SWITCHES", "hook_settings"]

_UNUSED = "find_unused_parameters"  # an argument of DistributedDataParallel
_DEFAULT_DEBUG_MODES = (0, "default")  # arguments of `set_deterministic_debug_mode` that turn it off


def _debug_mode_state(debug_mode: Any) -> bool:
    return debug_mode not in _DEFAULT_DEBUG_MODES


def _unused_parameters_state(module: Any, *_: Any, find_unused_parameters: Any = False, **__: Any) -> bool | None:
    return True if find_unused_parameters else None


def _data_parallel_state(module: Any, *_: Any, **__: Any) -> bool | None:
    """Return True if a DataParallel module uses several devices.

    Return None if it uses one device, because it then costs nothing.
    """
    return True if len(getattr(module, "device_ids", ())) > 1 else None


# The classes `set_detect_anomaly` and `detect_anomaly` call `torch.set_anomaly_enabled`, so a hook of this function
# covers them. An assignment to `cudnn.deterministic` calls the attribute `setter` of a descriptor, so the hook replaces
# this attribute.
SWITCHES = (
    Switch(DebugSetting.ANOMALY, torch, "set_anomaly_enabled", first_argument),
    Switch(DebugSetting.DETERMINISTIC, torch, "use_deterministic_algorithms", first_argument),
    Switch(DebugSetting.DETERMINISTIC, torch, "set_deterministic_debug_mode", _debug_mode_state),
    Switch(
        DebugSetting.CUDNN_DETERMINISTIC,
        vars(type(torch.backends.cudnn)).get("deterministic"),
        "setter",
        first_argument,
    ),
    Switch(DebugSetting.UNUSED_PARAMETERS, DistributedDataParallel, "__init__", _unused_parameters_state, _UNUSED),
)
# Emulations use SWITCHES. To emulate a run without the profiler, they replace other functions. They cannot remove
# DataParallel.
_RECORDED_ONLY = (
    Switch(DebugSetting.TORCH_PROFILER, profiler, "_enable_profiler", always),
    Switch(DebugSetting.TORCH_PROFILER, profiler, "_disable_profiler", never),
    Switch(DebugSetting.DATA_PARALLEL, DataParallel, "__init__", _data_parallel_state),
)


def hook_settings(hooks: TorchHooks) -> None:
    spans = SettingSpans(hooks.patches)
    for switch in (*SWITCHES, *_RECORDED_ONLY):
        with hooks.guard(switch.setting):
            spans.hook(switch)
    states = {
        DebugSetting.ANOMALY: torch.is_anomaly_enabled(),
        DebugSetting.DETERMINISTIC: torch.are_deterministic_algorithms_enabled(),
        DebugSetting.CUDNN_DETERMINISTIC: torch.backends.cudnn.deterministic,
        DebugSetting.TORCH_PROFILER: torch.autograd._profiler_enabled(),
    }
    for setting, is_on in states.items():
        spans.switch(setting, bool(is_on) or None, line=-1)
