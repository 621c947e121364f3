"""What the driver tells of GPUs while the loop runs, asked a few times a second by a thread: load, clocks, link, power.

Where there is no driver nothing is started. The calls let the interpreter go on, so the loop does not wait for them.
"""

import ctypes
import os
import threading
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from forebay.core.nvml import Nvml

__all__ = ["GpuSampler", "visible_devices"]

PERIOD_SECONDS = 0.25
MOST_GPUS = 8
MOST_SAMPLES = 400  # of a GPU: a hundred seconds
_SM_CLOCK = ctypes.c_uint(1)
_SENT, _RECEIVED = ctypes.c_uint(0), ctypes.c_uint(1)  # as the GPU sees it


class GpuSampler:
    """Between `start` and `stop` it keeps samples; `gpus` has them as plain values."""

    def __init__(self) -> None:
        self.gpus: list[dict[str, Any]] = []
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Once; where there is no driver the thread ends at once."""
        self._thread = threading.Thread(target=self._run, name="forebay GPU sampler", daemon=True)
        with suppress(RuntimeError):  # no room for one more: never the script's trouble
            self._thread.start()

    def stop(self) -> None:
        """No more samples; the one that is being taken is not waited for."""
        self._over.set()

    def _run(self) -> None:
        with _Gauges() as gauges:
            handles = [gauges.device(index) for index in visible_devices(gauges.count)[:MOST_GPUS]]
            known = [handle for handle in handles if handle is not None]
            self.gpus = [gauges.describe(handle) | {"samples": []} for handle in known]
            while known and not self._over.is_set():
                for handle, gpu in zip(known, self.gpus, strict=True):
                    gpu["samples"] = [*gpu["samples"][1 - MOST_SAMPLES :], gauges.sample(handle)]
                self._over.wait(PERIOD_SECONDS)


def visible_devices(count: int) -> list[int]:
    """By number, where the environment hides some; all of them where it names them otherwise."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or not all(part.strip().isdigit() for part in named.split(",") if part.strip()):
        return [*range(count)]
    return [int(part) for part in named.split(",") if part.strip() and int(part) < count]


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Gauges(Nvml):
    """The library's gauges; what a GPU does not tell is None."""

    @property
    def count(self) -> int:
        return self._number("nvmlDeviceGetCount_v2") or 0

    def device(self, index: int) -> Any:
        return self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))

    def describe(self, handle: Any) -> dict[str, Any]:
        """What stays."""
        power = self._number("nvmlDeviceGetEnforcedPowerLimit", handle)
        return {
            "name": self._text("nvmlDeviceGetName", handle),
            "most_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK),
            "most_link_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "most_link_width": self._number("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "most_watts": power / 1e3 if power else None,
            "total_nbytes": self._memory(handle)[1],
        }

    def sample(self, handle: Any) -> dict[str, Any]:
        """What changes."""
        load = _Utilization()
        known = self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(load))
        power = self._number("nvmlDeviceGetPowerUsage", handle)
        return {
            "at": perf_counter_ns(),
            "busy": load.gpu / 100 if known else None,
            "clock_mhz": self._number("nvmlDeviceGetClockInfo", handle, _SM_CLOCK),
            "held_back": self._reasons(handle),
            "link_generation": self._number("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "link_width": self._number("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "received_bytes_per_second": self._throughput(handle, _RECEIVED),
            "sent_bytes_per_second": self._throughput(handle, _SENT),
            "watts": power / 1e3 if power else None,
            "used_nbytes": self._memory(handle)[0],
        }

    def _reasons(self, handle: Any) -> int | None:
        """Bits that say why clocks are low, by its newer name or its older one."""
        reasons = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._call(name, handle, ctypes.byref(reasons)):
                return reasons.value
        return None

    def _throughput(self, handle: Any, direction: ctypes.c_uint) -> int | None:
        kilobytes = self._number("nvmlDeviceGetPcieThroughput", handle, direction)
        return None if kilobytes is None else kilobytes * 1024

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Used by anybody, and in all."""
        found = _Memory()
        known = self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(found))
        return (found.used, found.total) if known else (None, None)
