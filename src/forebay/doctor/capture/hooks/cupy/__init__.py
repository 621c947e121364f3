"""CuPy: what crosses, what waits, which kernels are made and compiled."""

import re
from collections.abc import Callable
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

import cupy
import numpy as np

from forebay.doctor.capture.data_fingerprint import key_of
from forebay.doctor.capture.hooks.cupy.proxy_classes import watch_class
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["install"]

_READS = {
    "get": "cupy.ndarray.get",
    "item": "cupy.ndarray.item",
    "tolist": "cupy.ndarray.tolist",
    "__bool__": "bool(array)",
    "__float__": "float(array)",
    "__int__": "int(array)",
    "__complex__": "complex(array)",
    "__repr__": "print(array)",
    "__str__": "print(array)",
    "__format__": "format(array)",
}
_CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray")
_KERNELS = ("RawKernel", "ElementwiseKernel", "ReductionKernel")
_KEYED_NBYTES = 1 << 10  # a number or two is no data
_KERNEL_NAME = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)")

Found = tuple[int, dict[str, Any] | None]


def install(patches: Patches) -> None:
    for name, spoken in _READS.items():
        patches.watch(cupy.ndarray, name, Kind.DOWNLOAD, spoken, _downloaded)
    patches.watch(cupy, "asnumpy", Kind.DOWNLOAD, "cupy.asnumpy", _downloaded)
    patches.watch(cupy.ndarray, "set", Kind.UPLOAD, "cupy.ndarray.set", _set)
    for name in _CONVERSIONS:
        patches.watch(cupy, name, Kind.UPLOAD, f"cupy.{name}", _converted)
    _watch_waits(patches)
    _watch_kernels(patches)


def _watch_waits(patches: Patches) -> None:
    for owner in ("Stream", "ExternalStream", "Event"):
        api = f"cupy.cuda.{owner}.synchronize"
        patches.watch(getattr(cupy.cuda, owner), "synchronize", Kind.SYNC, api, _waited)
    for name in ("deviceSynchronize", "streamSynchronize"):
        patches.watch(cupy.cuda.runtime, name, Kind.SYNC, f"cupy.cuda.runtime.{name}", _waited)
    watch_class(patches, cupy.cuda, "Device", "cupy.cuda.Device.synchronize", {"synchronize": Kind.SYNC})


def _watch_kernels(patches: Patches) -> None:
    """A launch ends when it is queued: its time is that of the call, not of the kernel."""
    for name in _KERNELS:
        watch_class(patches, cupy, name, f"cupy.{name}", {"__call__": Kind.RUN}, made=_made)
    watch_class(patches, cupy, "RawModule", "cupy.RawModule", {}, made=_made)
    compiled = _watched_compiler(patches.ledger)
    patches.replace(cupy.cuda.compiler, "_compile_module_with_cache", compiled, api="compilations of CuPy")


def _watched_compiler(ledger: Ledger) -> Callable[[Any], Any]:
    """It is asked for every kernel that is new to the process, mostly inside a launch, which is watched already.

    Compiled or loaded from the disk: the script waits for it.
    """

    def make(original: Any) -> Any:
        def compile_module(source: Any, *args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            result = original(source, *args, **kwargs)
            if ledger.on:
                name = _KERNEL_NAME.search(source) if isinstance(source, str) else None
                ledger.add(Kind.COMPILE, "cupy", start, detail={"function": name[1]} if name else None)
            return result

        return compile_module

    return make


def _downloaded(result: Any, a: Any, *_: Any, **__: Any) -> Found | None:
    return (a.nbytes, _about(a)) if isinstance(a, cupy.ndarray) else None


def _set(result: Any, array: Any, arr: Any, *_: Any, **__: Any) -> Found:
    return array.nbytes, _about(array) | _origin(arr, array.dtype)


def _converted(result: Any, *args: Any, **kwargs: Any) -> Found | None:
    """Only what was the host's: device arrays, or lists of some, do not cross."""
    data = args[0] if args else kwargs.get("a", kwargs.get("obj"))
    if hasattr(_first_of(data), "__cuda_array_interface__"):
        return None
    return result.nbytes, _about(result) | _origin(data, result.dtype)


def _first_of(data: Any) -> Any:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data


_spoken = lru_cache(maxsize=64)(str)  # a dtype takes longer to say its name than all else that is written down of it


def _about(array: Any) -> dict[str, Any]:
    return {"device": f"cuda:{array.device.id}", "dtype": _spoken(array.dtype), "shape": list(array.shape)}


def _origin(data: Any, dtype: Any) -> dict[str, Any]:
    """What the data was on the host, as far as that matters."""
    if not isinstance(data, np.ndarray | np.generic):
        return {"from_dtype": type(data).__name__}
    detail: dict[str, Any] = {"from_dtype": str(data.dtype)} if data.dtype != dtype else {}
    key = key_of(data) if data.nbytes >= _KEYED_NBYTES else ""
    return detail | _pinned(data) | ({"key": key} if key else {})


def _pinned(data: Any) -> dict[str, bool]:
    """Whether it lies in page-locked memory of CuPy's; nothing where the memory is somebody else's."""
    owner = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if owner is None or isinstance(owner, np.generic):
        return {"pinned": False}
    return {"pinned": True} if isinstance(owner, cupy.cuda.PinnedMemoryPointer) else {}


def _waited(*_: Any, **__: Any) -> Found:
    return 0, None


def _made(kernel: Any) -> dict[str, Any]:
    name = getattr(kernel, "name", None)
    return {"what": "function"} | ({"function": str(name)} if name else {})
