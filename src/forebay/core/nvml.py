"""Facts about GPUs, from NVML, the management library of the NVIDIA driver.

A query creates no CUDA context, so the process can still fork after it. The Python binding pynvml (package
nvidia-ml-py) is optional. Without pynvml or without a driver, queries return None or an empty value and do not raise.
"""

from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

__all__ = ["PACKAGE", "Nvml", "has_binding"]

PACKAGE = "nvidia-ml-py"  # the extras cu12 and cu13 install it


def has_binding() -> bool:
    """Return whether pynvml is installed."""
    return find_spec("pynvml") is not None


class Nvml:
    """A session with NVML. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._pynvml: Any = None  # the module; None if pynvml or the driver is missing

    def __enter__(self) -> Self:
        try:
            pynvml = import_module("pynvml")  # here and not at the top of this file, because it takes about 50 ms
        except ImportError:
            return self
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return self
        self._pynvml = pynvml
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.query("nvmlShutdown")
        self._pynvml = None

    @property
    def driver_version(self) -> str:
        return str(self.query("nvmlSystemGetDriverVersion") or "")

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The names of all GPUs, including those that CUDA_VISIBLE_DEVICES hides."""
        handles = map(self.gpu_handle, range(self.gpu_count))
        return tuple(str(self.query("nvmlDeviceGetName", handle) or "") for handle in handles if handle is not None)

    @property
    def gpu_count(self) -> int:
        return int(self.query("nvmlDeviceGetCount") or 0)

    def gpu_handle(self, index: int) -> Any:
        return self.query("nvmlDeviceGetHandleByIndex", index)

    def pcie_link(self, bus_address: str) -> tuple[int | None, int | None]:
        """Return (PCIe generation, number of lanes) of the current link of a GPU.

        A number that NVML cannot report is None. `bus_address` is the GPU's PCI address, such as 00000000:3b:00.0.
        """
        handle = self.query("nvmlDeviceGetHandleByPciBusId", bus_address)
        if handle is None:
            return None, None
        generation = self.query("nvmlDeviceGetCurrPcieLinkGeneration", handle)
        return generation, self.query("nvmlDeviceGetCurrPcieLinkWidth", handle)

    def query(self, function: str, *arguments: Any) -> Any:
        """Call pynvml's function of this name, and return its result.

        Return None if pynvml is missing, or if pynvml, the driver or the GPU does not support the function.
        """
        call = getattr(self._pynvml, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._pynvml.NVMLError:
            return None
