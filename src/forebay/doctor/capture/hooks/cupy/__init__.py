"""Hooks for CuPy: transfers, waits, and kernels that are created, compiled or launched."""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from time import perf_counter_ns
from typing import Any

import cupy
import numpy as np

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.capture.hooks.cupy.proxy_classes import hook_class
from forebay.doctor.capture.hooks.pieces import first_leaf
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["install"]

# Methods of arrays that read values back -> API name in events.
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
_CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray")  # functions of cupy that upload host data
_KERNEL_CLASSES = ("RawKernel", "ElementwiseKernel", "ReductionKernel")
_MIN_FINGERPRINT_NBYTES = 1 << 10  # smaller arrays are a few numbers, not training data
# Finds the name of the first kernel in CUDA source.
_KERNEL_NAME = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)")

Description = tuple[int, dict[str, Any] | None]  # bytes and details of an event


def install(patches: Patches) -> None:
    for name, api in _READS.items():
        patches.hook(cupy.ndarray, name, EventKind.DOWNLOAD, api, _describe_read)
    patches.hook(cupy, "asnumpy", EventKind.DOWNLOAD, "cupy.asnumpy", _describe_read)
    patches.hook(cupy.ndarray, "set", EventKind.UPLOAD, "cupy.ndarray.set", _describe_set)
    for name in _CONVERSIONS:
        patches.hook(cupy, name, EventKind.UPLOAD, f"cupy.{name}", _describe_conversion)
    _hook_waits(patches)
    _hook_kernels(patches)


def _hook_waits(patches: Patches) -> None:
    for owner in ("Stream", "ExternalStream", "Event"):
        api = f"cupy.cuda.{owner}.synchronize"
        patches.hook(getattr(cupy.cuda, owner), "synchronize", EventKind.SYNC, api, _describe_wait)
    for name in ("deviceSynchronize", "streamSynchronize"):
        patches.hook(cupy.cuda.runtime, name, EventKind.SYNC, f"cupy.cuda.runtime.{name}", _describe_wait)
    hook_class(patches, cupy.cuda, "Device", "cupy.cuda.Device.synchronize", {"synchronize": EventKind.SYNC})


def _hook_kernels(patches: Patches) -> None:
    """Hook kernel classes and the compiler.

    A launch returns when the kernel is queued, so its event has the time of the call, not the time of the kernel.
    """
    for name in _KERNEL_CLASSES:
        methods = {"__call__": EventKind.RUN}
        hook_class(patches, cupy, name, f"cupy.{name}", methods, describe_created=_describe_kernel)
    hook_class(patches, cupy, "RawModule", "cupy.RawModule", {}, describe_created=_describe_kernel)
    hook_compiler = partial(_hook_compiler, patches.ledger)
    patches.replace(cupy.cuda.compiler, "_compile_module_with_cache", hook_compiler, api="compilations of CuPy")


def _hook_compiler(ledger: Ledger, original: Any) -> Callable[..., Any]:
    """Return a hook that records every kernel that is new to the process.

    The hook records even inside a recorded launch. The script waits while CuPy compiles the kernel, or loads it from
    the disk cache of CuPy.
    """

    def compile_module(source: Any, *args: Any, **kwargs: Any) -> Any:
        start = perf_counter_ns()
        result = original(source, *args, **kwargs)
        if ledger.is_on:
            name = _KERNEL_NAME.search(source) if isinstance(source, str) else None
            ledger.add(EventKind.COMPILE, "cupy", start, detail={"function": name[1]} if name else None)
        return result

    return compile_module


# The parameters `a` and `arr` have the names that CuPy uses, because scripts may pass them by keyword.
def _describe_read(result: Any, a: Any, *_: Any, **__: Any) -> Description | None:
    return (a.nbytes, _describe_array(a)) if isinstance(a, cupy.ndarray) else None


def _describe_set(result: Any, array: Any, arr: Any, *_: Any, **__: Any) -> Description:
    return array.nbytes, _describe_array(array) | _describe_source(arr, array.dtype)


def _describe_conversion(result: Any, *args: Any, **kwargs: Any) -> Description | None:
    """Describe the upload of host data; None for device arrays and lists of them."""
    data = args[0] if args else kwargs.get("a", kwargs.get("obj"))
    if hasattr(first_leaf(data), "__cuda_array_interface__"):
        return None
    return result.nbytes, _describe_array(result) | _describe_source(data, result.dtype)


_dtype_name = lru_cache(maxsize=64)(str)  # cached: formatting a dtype takes longer than all other details


def _describe_array(array: Any) -> dict[str, Any]:
    return {"device": f"cuda:{array.device.id}", "dtype": _dtype_name(array.dtype), "shape": list(array.shape)}


def _describe_source(data: Any, dtype: Any) -> dict[str, Any]:
    """Describe host data: its page-lock, its fingerprint, and its dtype if `dtype` differs.

    For Python data, return only the name of its type.
    """
    if not isinstance(data, np.ndarray | np.generic):
        return {"from_dtype": type(data).__name__}
    detail: dict[str, Any] = {"from_dtype": str(data.dtype)} if data.dtype != dtype else {}
    key = fingerprint(data) if data.nbytes >= _MIN_FINGERPRINT_NBYTES else ""
    return detail | _describe_pinning(data) | ({"key": key} if key else {})


def _describe_pinning(data: Any) -> dict[str, bool]:
    """Return whether CuPy has page-locked the data; {} if another library owns the memory."""
    owner = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if owner is None or isinstance(owner, np.generic):
        return {"pinned": False}
    return {"pinned": True} if isinstance(owner, cupy.cuda.PinnedMemoryPointer) else {}


def _describe_wait(*_: Any, **__: Any) -> Description:
    return 0, None


def _describe_kernel(kernel: Any) -> dict[str, Any]:
    name = getattr(kernel, "name", None)
    return {"what": "function"} | ({"function": str(name)} if name else {})
