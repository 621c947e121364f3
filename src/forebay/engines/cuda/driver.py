"""The CUDA driver, as much of it as the engine needs: every call checked, no framework needed.

Whoever calls it may be amid the capture of a CUDA graph, on this thread or another. `with device:` makes the device's
context current and the thread relaxed towards captures, and puts both back: without it, asking an event whether it
has fired breaks somebody's capture.
"""

import ctypes
import threading
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Any

from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

from forebay.engines.cuda.driver_calls import check, cuda_error, quick_calls
from forebay.errors import DeviceError

__all__ = ["Device", "Event", "Kernel", "Stream", "address_of", "captures", "compile_kernels", "wait_on_foreign"]

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_EVENT_FLAGS = int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING) | int(cu.CUevent_flags.CU_EVENT_BLOCKING_SYNC)
_PORTABLE, _READ_ONLY = 0x01, 0x08  # of cuMemHostRegister
_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ: cyclic, so the number may wrap around
_SUCCESS = cu.CUresult.CUDA_SUCCESS
_NOT_READY = int(cu.CUresult.CUDA_ERROR_NOT_READY)
_CAPTURE_IMPLICIT = int(cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)


class Device:
    """One GPU, by the primary context that every framework shares; `with device:` around every use of it."""

    def __init__(self, index: int = 0) -> None:
        check(cu.cuInit(0), "starting")
        count = check(cu.cuDeviceGetCount(), "counting devices")
        if not 0 <= index < count:
            raise DeviceError(f"there is no device cuda:{index}: this machine has {count}. Leave device= out.")
        self.index = index
        self._device = check(cu.cuDeviceGet(index), f"opening device {index}")
        context = check(cu.cuDevicePrimaryCtxRetain(self._device), f"opening device {index}")
        self._context, self._calls = int(context), quick_calls()
        self._inside = threading.local()

    def __enter__(self) -> "Device":
        inside = self._inside.__dict__
        depth = inside.get("depth", 0)
        if depth == 0:
            self._calls.push(self._context)
            mode = inside.setdefault("mode", ctypes.c_int())
            mode.value = RELAXED
            self._calls.exchange_mode(ctypes.addressof(mode))  # holds the mode before, until it is put back
        inside["depth"] = depth + 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        inside = self._inside.__dict__
        inside["depth"] -= 1
        if inside["depth"] == 0:
            self._calls.exchange_mode(ctypes.addressof(inside["mode"]))
            self._calls.pop(ctypes.addressof(inside.setdefault("popped", ctypes.c_void_p())))

    def stay(self) -> None:
        """Enter for good: on a thread of our own, which then pays nothing for entering again."""
        self.__enter__()

    @property
    def name(self) -> str:
        return str(check(cu.cuDeviceGetName(128, self._device), "asking its name").split(b"\0")[0].decode())

    def attribute(self, name: str) -> int:
        """A number of the driver's, by the end of its name: MULTIPROCESSOR_COUNT."""
        which = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(cu.cuDeviceGetAttribute(which, self._device), f"asking for {name}"))

    @property
    def capability(self) -> tuple[int, int]:
        """What its processors can do, as NVIDIA numbers it: (9, 0) is Hopper."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def memory(self) -> tuple[int, int]:
        """Bytes free for anybody, and all of them."""
        with self:
            free, total = check(cu.cuMemGetInfo(), "asking for free memory")
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        with self:
            return int(check(cu.cuMemAlloc(nbytes), f"taking {nbytes} bytes of device memory"))

    def free(self, pointer: int) -> None:
        with self:
            cu.cuMemFree(pointer)

    def lock(self, address: int, nbytes: int, *, read_only: bool = False) -> None:
        """Page-lock memory in place, so that the device reaches it."""
        flags = _PORTABLE | (_READ_ONLY if read_only else 0)
        with self:
            check(cu.cuMemHostRegister(address, nbytes, flags), f"page-locking {nbytes} bytes")

    def unlock(self, address: int) -> None:
        with self:
            check(cu.cuMemHostUnregister(address), "undoing a page-lock")

    def check_owns(self, pointer: int) -> None:
        """Refuse memory of another device: frameworks number them in their own ways."""
        ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        found = int(check(cu.cuPointerGetAttribute(ordinal, pointer), "asking whose memory it is"))
        if found != self.index:
            raise DeviceError(
                f"the framework's device {self.index} is the driver's cuda:{found}: pass device='cuda:{found}', or "
                "make them agree with CUDA_VISIBLE_DEVICES."
            )

    def is_locked(self, address: int) -> bool:
        """Whether somebody has page-locked the memory at this address."""
        kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        with self:
            code, found = cu.cuPointerGetAttribute(kind, address)
        return bool(code == _SUCCESS and int(found) == int(cu.CUmemorytype.CU_MEMORYTYPE_HOST))

    @cache  # noqa: B019  # a device lives as long as the process
    def kernel(self, name: str, source: str = "gather.cu") -> "Kernel":
        """A kernel of one of the files beside this one, compiled for this very device."""
        return Kernel(self, self._module(source), name)

    @cache  # noqa: B019  # as above
    def _module(self, source: str) -> Any:
        major, minor = self.capability
        image = compile_kernels(source, f"{major}{minor}")
        with self:
            return check(cu.cuModuleLoadData(image), f"loading {source}")


class Kernel:
    """A kernel that takes one struct by value."""

    def __init__(self, device: Device, module: Any, name: str) -> None:
        self._device = device
        with device:
            self._function = int(check(cu.cuModuleGetFunction(module, name.encode()), f"finding {name}"))
        self._name, self._calls = name, quick_calls()

    def launch(self, stream: "Stream | int", job: ctypes.Structure, *, blocks: int, threads: int) -> None:
        """Queue it; the struct is copied before this returns."""
        pointers = ctypes.c_void_p(ctypes.addressof(job))
        handle = stream if isinstance(stream, int) else stream.handle
        code = self._calls.launch(
            self._function, blocks, 1, 1, threads, 1, 1, 0, handle, ctypes.addressof(pointers), None
        )
        if code:
            raise cuda_error(code, f"launching {self._name}")


class Event:
    """A point in a stream's work that can be waited for."""

    def __init__(self, device: Device) -> None:
        self._device, self._calls = device, quick_calls()
        with device:
            self.handle = int(check(cu.cuEventCreate(_EVENT_FLAGS), "making an event"))

    def record(self, stream: "Stream | int") -> None:
        code = self._calls.record(self.handle, stream if isinstance(stream, int) else stream.handle)
        if code:
            raise cuda_error(code, "recording an event")

    @property
    def fired(self) -> bool:
        code = self._calls.query(self.handle)
        if code not in (0, _NOT_READY):
            raise cuda_error(code, "in earlier work")
        return bool(code == 0)

    def wait(self) -> None:
        """Block this thread, without the interpreter and without spinning."""
        if not self.fired:
            check(cu.cuEventSynchronize(self.handle), "in earlier work")

    def close(self) -> None:
        with self._device:
            cu.cuEventDestroy(self.handle)


class Stream:
    """A queue of our own on the device; it never waits for the default stream."""

    def __init__(self, device: Device, *, urgent: bool = False) -> None:
        self._device, self._calls = device, quick_calls()
        with device:
            _, most_urgent = check(cu.cuCtxGetStreamPriorityRange(), "asking for stream priorities")
            flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
            made = check(cu.cuStreamCreateWithPriority(flags, most_urgent if urgent else 0), "making a stream")
            self.handle = int(made)

    def wait_for(self, event: Event) -> None:
        code = self._calls.wait_event(self.handle, event.handle, 0)
        if code:
            raise cuda_error(code, "ordering streams")

    def wait_for_value(self, pointer: int, value: int) -> None:
        """Hold the stream until the 32-bit number there has reached a value; it may wrap around."""
        code = self._calls.wait_value(self.handle, pointer, value, _AT_LEAST)
        if code:
            raise cuda_error(code, "ordering streams")

    def upload(self, target: int, source: int, nbytes: int) -> None:
        code = self._calls.copy_to_device(target, source, nbytes, self.handle)
        if code:
            raise cuda_error(code, f"copying {nbytes} bytes to the device")

    def upload_pageable(self, target: int, source: int, nbytes: int) -> None:
        """From memory that is not page-locked: the driver may wait, so the interpreter is given up."""
        check(cu.cuMemcpyHtoDAsync(target, source, nbytes, self.handle), f"copying {nbytes} bytes to the device")

    def download(self, target: int, source: int, nbytes: int) -> None:
        code = self._calls.copy_to_host(target, source, nbytes, self.handle)
        if code:
            raise cuda_error(code, f"copying {nbytes} bytes from the device")

    def clear(self, pointer: int, nbytes: int) -> None:
        code = self._calls.fill(pointer, 0, nbytes, self.handle)
        if code:
            raise cuda_error(code, "clearing memory")

    def wait(self) -> None:
        """Block this thread until all that was queued is done."""
        check(cu.cuStreamSynchronize(self.handle), "in earlier work")

    def close(self) -> None:
        with self._device:
            cu.cuStreamDestroy(self.handle)


def captures(stream: int) -> bool:
    """Whether somebody's stream is capturing a graph."""
    status = ctypes.c_int()
    code = quick_calls().is_capturing(stream, ctypes.addressof(status))
    if code == _CAPTURE_IMPLICIT:  # the default stream, which may not be touched while another captures
        return True
    if code:
        raise cuda_error(code, "asking a stream whether it captures")
    return bool(status.value)


def wait_on_foreign(stream: int, event: Event) -> bool:
    """Hold somebody else's stream until the event has fired; False while that stream captures a graph."""
    if captures(stream):
        return False
    code = quick_calls().wait_event(stream, event.handle, 0)
    if code:
        raise cuda_error(code, "ordering streams")
    return True


def address_of(array: Any) -> int:
    """Where an array begins."""
    return int(array.__array_interface__["data"][0])


def compile_kernels(source: str, architecture: str) -> bytes:
    """Machine code of one file, for compute capability 90 and the like."""
    text = files("forebay.engines.cuda").joinpath(source).read_bytes()
    program = _checked(nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], []))[0]
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))[0]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError(f"{source} does not compile for sm_{architecture}: {log.decode(errors='replace')}")
    image: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))[0]
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    nvrtc.nvrtcDestroyProgram(program)
    return image


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"the CUDA run-time compiler failed: {result[0].name}.")
    return result[1:]
