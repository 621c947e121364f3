"""The device ledger of a watch: recorded where there is a device and CUPTI lets us; said in words where not."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from forebay.doctor.capture.device.cupti import Activity
from forebay.doctor.model.device_records import Recorded
from forebay.errors import DeviceError

__all__ = ["DeviceLedger", "profiler_at_work"]


class DeviceLedger:
    """Started and stopped once; what goes wrong is a note, never the script's trouble."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._activity: Activity | None = None
        self.recorded: Recorded | None = None

    def start(self) -> bool:
        """Whether the device is recorded from now on."""
        if not _uses_a_device():
            return False
        other = profiler_at_work()
        if other is not None:
            self._notes.append(f"what the GPU does is not seen: {other} records it, and CUPTI serves one at a time.")
            return False
        try:
            activity = Activity()
            activity.start()
        except (DeviceError, OSError) as error:
            self._notes.append(f"what the GPU does is not seen: {error}")
            return False
        self._activity = activity
        return True

    def stop(self) -> None:
        activity, self._activity = self._activity, None
        if activity is None:
            return
        try:
            self.recorded = activity.stop()
        except DeviceError as error:
            self._notes.append(f"what the GPU did was lost: {error}")
            return
        if self.recorded.dropped:
            self._notes.append(f"{self.recorded.dropped} records of the GPU found no room and were dropped.")


def _uses_a_device() -> bool:
    """Whether this process has loaded the driver."""
    maps = Path("/proc/self/maps")
    return maps.is_file() and "libcuda.so" in maps.read_text()


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
