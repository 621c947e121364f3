"""Devices, streams, events and kernels of the CUDA driver.

If the driver reports an error, these classes raise `DeviceError`, except where they leave `with device:` or free
something. The user's code may be capturing a CUDA graph, on this thread or on another thread. Therefore
`with device:` makes the device's context current and sets the thread's capture mode to relaxed, and restores both at
the end. In any other capture mode, a query of an event would invalidate a capture in progress.
"""

import ctypes
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any

from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

from forebay.engines.cuda.driver_calls import check_result, cuda_error, fast_driver_calls
from forebay.errors import DeviceError

__all__ = [
    "Device",
    "Event",
    "Kernel",
    "Stream",
    "compile_kernels",
    "is_capturing",
    "make_stream_wait",
    "read_kernels",
]

# {file: files that `read_kernels` appends to it}. NVRTC compiles them together, because each compilation delays the
# first epoch.
_CONTINUATIONS = {"gather.cu": ("sort.cu",)}

RELAXED_CAPTURE = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_EVENT_FLAGS = int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING) | int(cu.CUevent_flags.CU_EVENT_BLOCKING_SYNC)
_PORTABLE, _READ_ONLY = 0x01, 0x08  # flags of cuMemHostRegister
_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ: a cyclic comparison, so the counter may wrap around
_SUCCESS = cu.CUresult.CUDA_SUCCESS
_NOT_READY = int(cu.CUresult.CUDA_ERROR_NOT_READY)
_CAPTURE_IMPLICIT = int(cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)


class Device:
    """One GPU and its primary context, which all frameworks share.

    Use streams, events and kernels of the device inside `with device:`.
    """

    def __init__(self, index: int = 0) -> None:
        check_result(cu.cuInit(0), "starting the driver")
        count = check_result(cu.cuDeviceGetCount(), "counting devices")
        if not 0 <= index < count:
            raise DeviceError(f"device cuda:{index} does not exist: CUDA finds {count} devices. Omit device=.")
        self.index = index
        self._device = check_result(cu.cuDeviceGet(index), f"opening device {index}")
        context = check_result(cu.cuDevicePrimaryCtxRetain(self._device), f"opening device {index}")
        self._context, self._calls = int(context), fast_driver_calls()
        self._thread_state = threading.local()  # nesting depth of `with device:`, and C variables for the driver

    def __enter__(self) -> "Device":
        state = self._thread_state.__dict__
        depth = state.get("depth", 0)
        if depth == 0:
            self._push_context(state)
        state["depth"] = depth + 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = self._thread_state.__dict__
        state["depth"] -= 1
        if state["depth"] == 0:
            self._calls.exchange_capture_mode(ctypes.addressof(state["mode"]))
            self._pop_context(state)

    def _push_context(self, state: dict[str, Any]) -> None:
        """Make the context current, and set the capture mode of the thread to relaxed."""
        code = self._calls.push_context(self._context)
        if code:
            raise cuda_error(code, f"making device {self.index} current")
        mode = state.setdefault("mode", ctypes.c_int())
        mode.value = RELAXED_CAPTURE
        code = self._calls.exchange_capture_mode(ctypes.addressof(mode))  # stores the previous mode in `mode`
        if code:
            self._pop_context(state)
            raise cuda_error(code, "setting the capture mode of the thread")

    def _pop_context(self, state: dict[str, Any]) -> None:
        self._calls.pop_context(ctypes.addressof(state.setdefault("popped", ctypes.c_void_p())))

    def make_current(self) -> None:
        """Make the device current on a thread of Forebay until the thread ends.

        Later `with device:` blocks on this thread then need no driver calls.
        """
        self.__enter__()

    @property
    def name(self) -> str:
        return str(
            check_result(cu.cuDeviceGetName(128, self._device), "reading the device name").split(b"\0")[0].decode()
        )

    def attribute(self, name: str) -> int:
        """Return a device attribute. Pass its name without the prefix, such as "MULTIPROCESSOR_COUNT"."""
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check_result(cu.cuDeviceGetAttribute(attribute, self._device), f"reading {name}"))

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (9, 0) for Hopper."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes of device memory."""
        with self:
            free, total = check_result(cu.cuMemGetInfo(), "reading the free memory")
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        with self:
            return int(check_result(cu.cuMemAlloc(nbytes), f"allocating {nbytes} bytes of device memory"))

    def free(self, pointer: int) -> None:
        with suppress(DeviceError), self:
            cu.cuMemFree(pointer)

    def page_lock(self, address: int, nbytes: int, *, read_only: bool = False) -> None:
        """Page-lock memory in place, so that the device can read it."""
        flags = _PORTABLE | (_READ_ONLY if read_only else 0)
        with self:
            check_result(cu.cuMemHostRegister(address, nbytes, flags), f"page-locking {nbytes} bytes")

    def page_unlock(self, address: int) -> None:
        with self:
            check_result(cu.cuMemHostUnregister(address), "releasing a page-lock")

    def check_owns(self, pointer: int) -> None:
        """Raise DeviceError if the memory at `pointer` is on another device.

        A framework may number the devices in another order than the driver.
        """
        attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        owner = int(check_result(cu.cuPointerGetAttribute(attribute, pointer), "finding the device of an address"))
        if owner != self.index:
            raise DeviceError(
                f"the framework's device {self.index} is cuda:{owner} for the driver. Pass device='cuda:{owner}', or "
                "set CUDA_VISIBLE_DEVICES so that both agree."
            )

    def is_page_locked(self, address: int) -> bool:
        """Return whether Forebay or other code has page-locked the memory at this address."""
        attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        with self:
            code, memory_type = cu.cuPointerGetAttribute(attribute, address)
        return bool(code == _SUCCESS and int(memory_type) == int(cu.CUmemorytype.CU_MEMORYTYPE_HOST))

    @cache  # noqa: B019  # a device object lives as long as the process
    def kernel(self, name: str, source: str = "gather.cu") -> "Kernel":
        """Return a kernel of a .cu file in this folder, compiled for this device."""
        return Kernel(self, self._module(source), name)

    @cache  # noqa: B019  # a device object lives as long as the process
    def _module(self, source: str) -> Any:
        major, minor = self.capability
        image = compile_kernels(source, f"{major}{minor}")
        with self:
            return check_result(cu.cuModuleLoadData(image), f"loading {source}")


class Kernel:
    """A compiled kernel that takes one struct by value."""

    def __init__(self, device: Device, module: Any, name: str) -> None:
        self._device = device
        with device:
            self._function = int(check_result(cu.cuModuleGetFunction(module, name.encode()), f"finding {name}"))
        self._name, self._calls = name, fast_driver_calls()

    def launch(self, stream: "Stream | int", job: ctypes.Structure, *, blocks: int, threads: int) -> None:
        """Queue the kernel on a stream.

        The driver copies the struct `job` before this method returns.
        """
        arguments = ctypes.c_void_p(ctypes.addressof(job))
        handle = stream if isinstance(stream, int) else stream.handle
        code = self._calls.launch_kernel(
            self._function, blocks, 1, 1, threads, 1, 1, 0, handle, ctypes.addressof(arguments), None
        )
        if code:
            raise cuda_error(code, f"launching {self._name}")


class Event:
    """A point in the work of a stream. Threads and streams can wait for it."""

    def __init__(self, device: Device) -> None:
        self._device, self._calls = device, fast_driver_calls()
        with device:
            self.handle = int(check_result(cu.cuEventCreate(_EVENT_FLAGS), "creating an event"))

    def record(self, stream: "Stream | int") -> None:
        code = self._calls.record_event(self.handle, stream if isinstance(stream, int) else stream.handle)
        if code:
            raise cuda_error(code, "recording an event")

    @property
    def has_fired(self) -> bool:
        code = self._calls.query_event(self.handle)
        if code not in (0, _NOT_READY):
            raise cuda_error(code, "in work queued earlier")
        return bool(code == 0)

    def wait(self) -> None:
        """Block this thread until the event fires, without the GIL and without spinning."""
        if not self.has_fired:
            check_result(cu.cuEventSynchronize(self.handle), "in work queued earlier")

    def close(self) -> None:
        with suppress(DeviceError), self._device:
            cu.cuEventDestroy(self.handle)


class Stream:
    """A CUDA stream that Forebay creates. It never waits for the default stream."""

    def __init__(self, device: Device, *, high_priority: bool = False) -> None:
        self._device, self._calls = device, fast_driver_calls()
        with device:
            _, highest = check_result(cu.cuCtxGetStreamPriorityRange(), "reading the stream priorities")
            flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
            created = check_result(
                cu.cuStreamCreateWithPriority(flags, highest if high_priority else 0), "creating a stream"
            )
            self.handle = int(created)

    def wait_for(self, event: Event) -> None:
        code = self._calls.wait_event(self.handle, event.handle, 0)
        if code:
            raise cuda_error(code, "ordering streams")

    def wait_for_value(self, pointer: int, value: int) -> None:
        """Make the stream wait until the 32-bit counter at `pointer` reaches `value`.

        The counter may wrap around.
        """
        code = self._calls.wait_value(self.handle, pointer, value, _AT_LEAST)
        if code:
            raise cuda_error(code, "ordering streams")

    def upload(self, target: int, source: int, nbytes: int) -> None:
        code = self._calls.copy_to_device(target, source, nbytes, self.handle)
        if code:
            raise cuda_error(code, f"copying {nbytes} bytes to the device")

    def upload_pageable(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy from memory that is not page-locked.

        The driver may block, so this method releases the GIL during the call.
        """
        check_result(cu.cuMemcpyHtoDAsync(target, source, nbytes, self.handle), f"copying {nbytes} bytes to the device")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy inside device memory."""
        check_result(cu.cuMemcpyDtoDAsync(target, source, nbytes, self.handle), f"copying {nbytes} bytes on the device")

    def download(self, target: int, source: int, nbytes: int) -> None:
        code = self._calls.copy_to_host(target, source, nbytes, self.handle)
        if code:
            raise cuda_error(code, f"copying {nbytes} bytes from the device")

    def clear(self, pointer: int, nbytes: int) -> None:
        code = self._calls.fill_memory(pointer, 0, nbytes, self.handle)
        if code:
            raise cuda_error(code, "clearing memory")

    def wait(self) -> None:
        """Block this thread until all queued work is done."""
        check_result(cu.cuStreamSynchronize(self.handle), "in work queued earlier")

    def close(self) -> None:
        with suppress(DeviceError), self._device:
            cu.cuStreamDestroy(self.handle)


def is_capturing(stream: int) -> bool:
    """Return whether a stream that Forebay does not own is capturing a CUDA graph."""
    status = ctypes.c_int()
    code = fast_driver_calls().is_capturing(stream, ctypes.addressof(status))
    if code == _CAPTURE_IMPLICIT:  # `stream` is the default stream, which is unusable while another stream captures
        return True
    if code:
        raise cuda_error(code, "reading the capture state of a stream")
    return bool(status.value)


def make_stream_wait(stream: int, event: Event) -> bool:
    """Make a stream that Forebay does not own wait for the event.

    Return False, and do nothing, if the stream is capturing a CUDA graph.
    """
    if is_capturing(stream):
        return False
    code = fast_driver_calls().wait_event(stream, event.handle, 0)
    if code:
        raise cuda_error(code, "ordering streams")
    return True


def read_kernels(source: str) -> bytes:
    """Return the text of a .cu file and of the files that continue it."""
    folder = files("forebay.engines.cuda")
    return b"\n".join(folder.joinpath(name).read_bytes() for name in (source, *_CONTINUATIONS.get(source, ())))


def compile_kernels(source: str, architecture: str) -> bytes:
    """Return the machine code of one .cu file for an architecture such as "90"."""
    program = _check_nvrtc(nvrtc.nvrtcCreateProgram(read_kernels(source), source.encode(), 0, [], []))[0]
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _check_nvrtc(nvrtc.nvrtcGetProgramLogSize(program))[0]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError(f"{source} does not compile for sm_{architecture}: {log.decode(errors='replace')}")
    image: bytes = b" " * _check_nvrtc(nvrtc.nvrtcGetCUBINSize(program))[0]
    _check_nvrtc(nvrtc.nvrtcGetCUBIN(program, image))
    nvrtc.nvrtcDestroyProgram(program)
    return image


def _check_nvrtc(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"the CUDA runtime compiler (NVRTC) failed: {result[0].name}.")
    return result[1:]
