"""Other profilers at work: CUPTI serves one, and who registers after another takes its records from it."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["profiler_at_work"]

# What a tool sets for the programs it starts.
_SETTINGS = {"NSYS_PROFILING_SESSION_ID": "Nsight Systems", "CUDA_INJECTION64_PATH": "a tool that CUDA has loaded"}
# Each by the module that knows, where a framework has loaded it, and what it is asked.
_ASKED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "torch.profiler": ("torch.autograd.profiler", lambda module: module._is_profiler_enabled),
    "tf.profiler": ("tensorflow.python.profiler.profiler_v2", lambda module: module._profiler is not None),
    "jax.profiler": ("jax._src.profiler", lambda module: module._profile_state.profile_session is not None),
}


def profiler_at_work() -> str | None:
    """Its name; None where there is none, or none that is known."""
    for setting, name in _SETTINGS.items():
        if os.environ.get(setting):
            return name
    for name, (module, is_on) in _ASKED.items():
        loaded = sys.modules.get(module)
        with suppress(AttributeError):  # another version, which keeps it elsewhere
            if loaded is not None and is_on(loaded):
                return name
    return None
