"""A thread that samples load, clocks, power, memory and PCIe link of each GPU.

The calls of NVML, the monitoring library of NVIDIA, release the interpreter lock. So they do not block the
training loop.
"""

import os
import threading
from contextlib import suppress
from itertools import takewhile
from time import perf_counter_ns
from typing import Any

from forebay.core.hardware import are_gpus_hidden
from forebay.core.nvml import Nvml

__all__ = ["GpuSampler", "visible_gpus"]

PERIOD_SECONDS = 0.25  # between two samples
MAX_GPUS = 8  # the sampler ignores further GPUs
MAX_SAMPLES = 400  # per GPU: the sampler keeps the last 100 seconds
_SM_CLOCK = 1  # NVML_CLOCK_SM
_SENT = 0  # NVML_PCIE_UTIL_TX_BYTES: bytes that the GPU sends
_RECEIVED = 1  # NVML_PCIE_UTIL_RX_BYTES: bytes that the GPU receives


class GpuSampler:
    """Samples the GPUs between `start` and `stop`."""

    def __init__(self) -> None:
        self.gpus: list[dict[str, Any]] = []  # JSON values of each GPU: its name, limits and "samples"
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Start the thread. It ends immediately if NVML is not available or reports no GPU."""
        self._thread = threading.Thread(target=self._run, name="forebay GPU sampler", daemon=True)
        with suppress(RuntimeError):  # the process cannot start another thread; profile without GPU samples
            self._thread.start()

    def stop(self) -> None:
        """Stop sampling. Does not wait for the thread to end."""
        self._stopped.set()

    def _run(self) -> None:
        with Nvml() as nvml:
            handles = [nvml.gpu_handle(index) for index in visible_gpus(nvml.gpu_count)[:MAX_GPUS]]
            handles = [handle for handle in handles if handle is not None]
            self.gpus = [_describe(nvml, handle) | {"samples": []} for handle in handles]
            while handles and not self._stopped.is_set():
                for handle, gpu in zip(handles, self.gpus, strict=True):
                    gpu["samples"] = [*gpu["samples"][1 - MAX_SAMPLES :], _sample(nvml, handle)]
                self._stopped.wait(PERIOD_SECONDS)


def visible_gpus(count: int) -> list[int]:
    """Return the GPU indices in CUDA_VISIBLE_DEVICES that are below `count`.

    An index without a GPU, such as -1, hides the GPUs after it, as in CUDA. Return all indices below `count` if the
    variable is unset or contains anything but indices, such as UUIDs.
    """
    if are_gpus_hidden():
        return []
    parts = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if not parts or not all(part.removeprefix("-").isdigit() for part in parts):
        return [*range(count)]
    return [*takewhile(range(count).__contains__, map(int, parts))]


def _describe(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """Return the name and the limits of a GPU, in the format of captures.

    The keys `most_*` are limits of the hardware or its settings, not samples. Unknown limits are None.
    """
    milliwatts = nvml.query("nvmlDeviceGetEnforcedPowerLimit", handle)
    memory = nvml.query("nvmlDeviceGetMemoryInfo", handle)
    return {
        "name": nvml.query("nvmlDeviceGetName", handle) or "",
        "most_clock_mhz": nvml.query("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK),
        "most_link_generation": nvml.query("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "most_link_width": nvml.query("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "most_watts": milliwatts / 1e3 if milliwatts else None,
        "total_nbytes": memory.total if memory is not None else None,
    }


def _sample(nvml: Nvml, handle: Any) -> dict[str, Any]:
    """Return one sample of a GPU, in the format of captures. Unknown values are None."""
    load = nvml.query("nvmlDeviceGetUtilizationRates", handle)
    milliwatts = nvml.query("nvmlDeviceGetPowerUsage", handle)
    memory = nvml.query("nvmlDeviceGetMemoryInfo", handle)
    return {
        "at": perf_counter_ns(),  # on the clock of the events
        "busy": load.gpu / 100 if load is not None else None,  # share of the time in which a kernel ran
        "clock_mhz": nvml.query("nvmlDeviceGetClockInfo", handle, _SM_CLOCK),
        "held_back": _clock_limit_reasons(nvml, handle),  # NVML bit mask of the reasons that limit the clock
        "link_generation": nvml.query("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "link_width": nvml.query("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "received_bytes_per_second": _pcie_bytes_per_second(nvml, handle, _RECEIVED),
        "sent_bytes_per_second": _pcie_bytes_per_second(nvml, handle, _SENT),
        "watts": milliwatts / 1e3 if milliwatts else None,
        "used_nbytes": memory.used if memory is not None else None,
    }


def _clock_limit_reasons(nvml: Nvml, handle: Any) -> int | None:
    """Return the NVML bit mask of reasons for low clocks; None if unknown."""
    # Drivers before 535 have only the second function.
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        reasons: int | None = nvml.query(function, handle)
        if reasons is not None:
            return reasons
    return None


def _pcie_bytes_per_second(nvml: Nvml, handle: Any, direction: int) -> int | None:
    """Return the PCIe throughput in one direction (_SENT or _RECEIVED); None if unknown."""
    kib_per_second = nvml.query("nvmlDeviceGetPcieThroughput", handle, direction)
    return None if kib_per_second is None else kib_per_second * 1024
