"""The device ledger of a session: records GPU activity, if the process uses CUDA."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from forebay.doctor.capture.device.cupti import CuptiRecorder
from forebay.doctor.model.device_records import DeviceRecords
from forebay.errors import DeviceError

__all__ = ["DeviceLedger", "active_profiler", "has_loaded_cuda"]


class DeviceLedger:
    """Records the GPU from `start` to `stop`. The last recording counts, also if it fails.

    An error becomes a note in the report, because it must not reach the script.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        """`note` adds a note to the report, unless the note exists.

        `start` may fail twice for the same reason.
        """
        self._note = note
        self._recorder: CuptiRecorder | None = None
        self.recorded: DeviceRecords | None = None  # set by `stop`; None if the last recording failed

    def start(self) -> bool:
        """Start recording; return whether this succeeded. Without CUDA, add no note."""
        self.recorded = None  # the steps of an earlier recording are no longer the recorded steps
        if not has_loaded_cuda():
            return False
        other_profiler = active_profiler()
        if other_profiler is not None:
            self._note(
                f"GPU activity is not recorded: {other_profiler} uses CUPTI, which serves one profiler at a time."
            )
            return False
        try:
            recorder = CuptiRecorder()
            recorder.start()
        except (DeviceError, OSError) as error:
            self._note(f"GPU activity is not recorded: {error}")
            return False
        self._recorder = recorder
        return True

    def stop(self) -> None:
        """Stop recording and set `recorded`. Does nothing if the recorder does not run."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        try:
            self.recorded = recorder.stop()
        except DeviceError as error:
            self._note(f"The records of GPU activity were lost: {error}")
            return
        if self.recorded.dropped:
            self._note(f"{self.recorded.dropped} records of GPU activity were dropped: the buffers were full.")


def has_loaded_cuda() -> bool:
    """Whether this process has loaded the CUDA driver."""
    maps = Path("/proc/self/maps")
    return maps.is_file() and "libcuda.so" in maps.read_text()


# Environment variable that a tool sets for the programs it starts -> name of the tool.
_SETTINGS = {"NSYS_PROFILING_SESSION_ID": "Nsight Systems", "CUDA_INJECTION64_PATH": "a tool that CUDA has loaded"}
# Profiler of a framework -> the module with its state, and a function that returns whether the profiler is running.
_PROFILERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "torch.profiler": ("torch.autograd.profiler", lambda module: module._is_profiler_enabled),
    "tf.profiler": ("tensorflow.python.profiler.profiler_v2", lambda module: module._profiler is not None),
    "jax.profiler": ("jax._src.profiler", lambda module: module._profile_state.profile_session is not None),
}


def active_profiler() -> str | None:
    """Return the name of a profiler that is running or started this process, or None."""
    for variable, name in _SETTINGS.items():
        if os.environ.get(variable):
            return name
    for name, (module_name, is_running) in _PROFILERS.items():
        module = sys.modules.get(module_name)
        with suppress(AttributeError):  # this version stores its state elsewhere
            if module is not None and is_running(module):
                return name
    return None
