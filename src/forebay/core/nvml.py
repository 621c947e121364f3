"""What the driver's management library tells of GPUs; asking it makes no CUDA context, so forking stays safe.

It is called by its C names, because it comes with the driver itself: its Python package need not be installed.
"""

import ctypes
from types import TracebackType
from typing import Any, Self

__all__ = ["Nvml"]

_TEXT_NBYTES = 96


class Nvml:
    """The library, opened by `with`; where there is none, nothing is known of any GPU, and that is no error."""

    def __init__(self) -> None:
        self._library: Any = None

    def __enter__(self) -> Self:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            self._library = library if library.nvmlInit_v2() == 0 else None
        except (OSError, AttributeError):
            self._library = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call("nvmlShutdown")
        self._library = None

    @property
    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    @property
    def names(self) -> tuple[str, ...]:
        """Of all GPUs, whatever the environment hides from CUDA."""
        count = self._number("nvmlDeviceGetCount_v2") or 0
        handles = (self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index)) for index in range(count))
        return tuple(self._text("nvmlDeviceGetName", handle) for handle in handles if handle is not None)

    def link(self, bus_address: str) -> tuple[int | None, int | None]:
        """PCIe generation and width as they are now, of the GPU at 00000000:3b:00.0."""
        handle = self._handle("nvmlDeviceGetHandleByPciBusId_v2", ctypes.c_char_p(bus_address.encode()))
        if handle is None:
            return None, None
        generation = self._number("nvmlDeviceGetCurrPcieLinkGeneration", handle)
        return generation, self._number("nvmlDeviceGetCurrPcieLinkWidth", handle)

    def _number(self, name: str, *arguments: Any) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._call(name, *arguments, ctypes.byref(value)) else None

    def _text(self, name: str, *arguments: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT_NBYTES)
        return text.value.decode(errors="replace") if self._call(name, *arguments, text, _TEXT_NBYTES) else ""

    def _handle(self, name: str, argument: Any) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        return handle if self._call(name, argument, ctypes.byref(handle)) else None

    def _call(self, name: str, *arguments: Any) -> bool:
        """Whether it answered; an older library may not know the question."""
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0
