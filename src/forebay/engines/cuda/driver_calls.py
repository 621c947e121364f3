"""Frequent CUDA driver calls through ctypes, and exceptions for driver errors.

NVIDIA's Python bindings take 3 to 8 us per call, and release the GIL in each call, which slows a training loop on
another thread. Forebay uses the bindings only for rare calls and for calls that block.
"""

import ctypes
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from forebay.errors import DeviceError, DeviceMemoryError

__all__ = ["FastDriverCalls", "check_result", "cuda_error", "fast_driver_calls"]

_HANDLE, _POINTER, _UINT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint


class FastDriverCalls:
    """Driver calls that return at once, so they keep the GIL.

    Each call returns an error code; 0 is success.
    """

    def __init__(self) -> None:
        driver = ctypes.PyDLL("libcuda.so.1")
        self.push_context = _declare(driver.cuCtxPushCurrent_v2, _HANDLE)
        self.pop_context = _declare(driver.cuCtxPopCurrent_v2, _HANDLE)
        self.exchange_capture_mode = _declare(driver.cuThreadExchangeStreamCaptureMode, _HANDLE)
        self.record_event = _declare(driver.cuEventRecord, _HANDLE, _HANDLE)
        self.query_event = _declare(driver.cuEventQuery, _HANDLE)
        self.wait_event = _declare(driver.cuStreamWaitEvent, _HANDLE, _HANDLE, _UINT)
        self.wait_value = _declare(driver.cuStreamWaitValue32_v2, _HANDLE, _POINTER, _UINT, _UINT)
        self.is_capturing = _declare(driver.cuStreamIsCapturing, _HANDLE, _HANDLE)
        self.copy_to_device = _declare(driver.cuMemcpyHtoDAsync_v2, _POINTER, _POINTER, ctypes.c_size_t, _HANDLE)
        self.copy_to_host = _declare(driver.cuMemcpyDtoHAsync_v2, _POINTER, _POINTER, ctypes.c_size_t, _HANDLE)
        self.fill_memory = _declare(driver.cuMemsetD8Async, _POINTER, ctypes.c_ubyte, ctypes.c_size_t, _HANDLE)
        self.launch_kernel = _declare(driver.cuLaunchKernel, _HANDLE, *[_UINT] * 7, _HANDLE, _HANDLE, _HANDLE)


def _declare(function: Any, *argument_types: Any) -> Any:
    """Set the C argument and return types of a driver function, and return the function."""
    function.argtypes, function.restype = argument_types, ctypes.c_int
    return function


@cache
def fast_driver_calls() -> FastDriverCalls:
    """Return the instance that all threads of this process share."""
    return FastDriverCalls()


def check_result(result: tuple[Any, ...], activity: str) -> Any:
    """Return the values of a call through the bindings, or raise its error.

    `activity` completes the error message "CUDA failed ...", such as "creating a stream".
    """
    code = result[0]
    if code != cu.CUresult.CUDA_SUCCESS:
        raise cuda_error(code, activity)
    return result[1] if len(result) == 2 else result[1:]


def cuda_error(code: Any, activity: str) -> DeviceError:
    """Return the exception for an error code of the driver, with `activity` in its message."""
    code = cu.CUresult(code)
    _, text = cu.cuGetErrorString(code)
    message = f"CUDA failed {activity}: {text.decode() if text else code} ({code.name})."
    if code == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        return DeviceMemoryError(f"{message} Pass a smaller device_bytes=, make batches smaller, or free memory.")
    return DeviceError(message)
