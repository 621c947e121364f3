"""Frequent calls of the CUDA driver, made through ctypes, and the driver's errors.

NVIDIA's Python bindings take 3 to 8 us per call. They release the GIL in each call, which slows a training loop on
another thread. Forebay uses the bindings only for calls that it makes once per feed.
"""

import ctypes
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["FastDriverCalls", "check_result", "cuda_error", "fast_driver_calls"]

_HANDLE, _POINTER, _UINT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint


class FastDriverCalls:
    """Driver calls that return at once. They keep the GIL."""

    def __init__(self) -> None:
        driver = ctypes.PyDLL("libcuda.so.1")
        self.push = _typed(driver.cuCtxPushCurrent_v2, _HANDLE)
        self.pop = _typed(driver.cuCtxPopCurrent_v2, _HANDLE)
        self.exchange_mode = _typed(driver.cuThreadExchangeStreamCaptureMode, _HANDLE)
        self.record = _typed(driver.cuEventRecord, _HANDLE, _HANDLE)
        self.query = _typed(driver.cuEventQuery, _HANDLE)
        self.wait_event = _typed(driver.cuStreamWaitEvent, _HANDLE, _HANDLE, _UINT)
        self.wait_value = _typed(driver.cuStreamWaitValue32_v2, _HANDLE, _POINTER, _UINT, _UINT)
        self.is_capturing = _typed(driver.cuStreamIsCapturing, _HANDLE, _HANDLE)
        self.copy_to_device = _typed(driver.cuMemcpyHtoDAsync_v2, _POINTER, _POINTER, ctypes.c_size_t, _HANDLE)
        self.copy_to_host = _typed(driver.cuMemcpyDtoHAsync_v2, _POINTER, _POINTER, ctypes.c_size_t, _HANDLE)
        self.fill = _typed(driver.cuMemsetD8Async, _POINTER, ctypes.c_ubyte, ctypes.c_size_t, _HANDLE)
        self.launch = _typed(driver.cuLaunchKernel, _HANDLE, *[_UINT] * 7, _HANDLE, _HANDLE, _HANDLE)


def _typed(function: Any, *types: Any) -> Any:
    function.argtypes, function.restype = types, ctypes.c_int
    return function


@cache
def fast_driver_calls() -> FastDriverCalls:
    """Return the one instance of this process."""
    return FastDriverCalls()


def check_result(result: tuple[Any, ...], doing: str) -> Any:
    """Return the values of a driver call, or raise its error. `doing` completes "CUDA failed ..."."""
    code = result[0]
    if code != cu.CUresult.CUDA_SUCCESS:
        raise cuda_error(code, doing)
    return result[1] if len(result) == 2 else result[1:]


def cuda_error(code: Any, doing: str) -> DeviceError:
    """Return the exception for an error code of the driver."""
    code = cu.CUresult(code)
    _, text = cu.cuGetErrorString(code)
    message = f"CUDA failed {doing}: {text.decode() if text else code} ({code.name})."
    if code == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        return DeviceMemoryError(f"{message} Pass a smaller device_bytes=, make batches smaller, or free memory.")
    return DeviceError(message)
