"""Emulations for CuPy: hooks that replace uploads, read-backs and waits for the GPU."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from forebay.doctor.emulate.emulator import Emulator, skip_read
from forebay.doctor.emulate.transfers import narrow
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

# Methods that read a value back to the host.
_READS = (
    *("get", "item", "tolist", "__bool__", "__float__", "__int__", "__complex__", "__repr__", "__str__"),
    "__format__",
)
# Functions that convert host data to CuPy arrays. The hooks do not change calls that pass the data by keyword.
_CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray")
# Classes in `cupy.cuda` with a method `synchronize`, which waits for the device.
_WAIT_CLASSES = ("Stream", "ExternalStream", "Event")

Function = Callable[..., Any]  # a function of CuPy
MakeHook = Callable[[Emulator, Function], Function]  # (emulator, original) -> hook


def install(emulator: Emulator) -> None:
    """Replace the calls that `_CALLS` lists for the kind of the emulation."""
    for owner, name, make_hook in _CALLS.get(emulator.kind, ()):
        emulator.patches.replace(owner, name, partial(make_hook, emulator), api=name)


def wait() -> None:
    """Wait until the device has finished all queued work."""
    cupy.cuda.runtime.deviceSynchronize()


def _reuse_conversion(emulator: Emulator, convert: Function) -> Function:
    """Return a hook that reuses the result of an earlier conversion; see `UploadReuse.upload`."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        run_original = partial(convert, *args, **kwargs)
        if not args or hasattr(args[0], "__cuda_array_interface__"):
            return run_original()
        data, *options = args
        return emulator.uploads.upload(run_original, data, convert, *options, *kwargs.items())

    return hook


def _reuse_set(emulator: Emulator, set_values: Function) -> Function:
    """Return a hook that skips `array.set(data)` if equivalent data was set before; see `UploadReuse.upload`."""

    def hook(array: Any, *args: Any, **kwargs: Any) -> None:
        def run_original() -> bool:
            set_values(array, *args, **kwargs)
            return True  # a result for `UploadReuse` to store

        if args:
            emulator.uploads.upload(run_original, args[0], set_values, id(array))
        else:
            run_original()

    return hook


def _convert_prepared(emulator: Emulator, convert: Function) -> Function:
    """Return a hook that converts a page-locked or narrowed array instead of the data."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not np.ndarray:
            return convert(*args, **kwargs)
        prepared = emulator.prepared.substitute(args[0], _PREPARATIONS[emulator.kind])
        return convert(prepared, *args[1:], **kwargs)

    return hook


def _page_lock(data: Any) -> Any:
    """Return a copy of the data in page-locked memory."""
    memory = cupy.cuda.alloc_pinned_memory(data.nbytes)
    locked = np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)
    locked[...] = data
    return locked


_PREPARATIONS = {EmulationKind.LOCK: _page_lock, EmulationKind.NARROW: narrow}


def _prefetch_conversion(emulator: Emulator, convert: Function) -> Function:
    """Return a hook that starts each upload one step early."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        run_original = partial(convert, *args, **kwargs)
        if not args or type(args[0]) is not np.ndarray:
            return run_original()
        return emulator.prefetch.upload(run_original, args[0], _start_copy)

    return hook


def _start_copy(convert: Function) -> Function:
    """Start an upload on a separate stream; return a function that returns the array.

    The returned function makes the current stream wait for the upload.
    """
    with _copy_stream():
        array, copy_done = convert(), cupy.cuda.Event()
        copy_done.record()
    return partial(_take_array, array, copy_done)


def _take_array(array: Any, copy_done: Any) -> Any:
    cupy.cuda.get_current_stream().wait_event(copy_done)
    return array


@cache
def _copy_stream() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def _skip_wait(emulator: Emulator, wait: Function) -> Function:
    """Return a hook that skips most waits; see `SkippedReads.wait`."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        return emulator.reads.wait(partial(wait, *args, **kwargs), "synchronize")

    return hook


# Owner, name and hook of each call to replace.
_UPLOADS: list[tuple[Any, str, MakeHook]] = [(cupy, name, _reuse_conversion) for name in _CONVERSIONS]
_UPLOADS += [(cupy.ndarray, "set", _reuse_set)]
_CALLS: dict[EmulationKind, list[tuple[Any, str, MakeHook]]] = {
    EmulationKind.RESIDENT: _UPLOADS,
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.DEFER: [
        *((cupy.ndarray, name, partial(skip_read, name)) for name in _READS),
        (cupy, "asnumpy", partial(skip_read, "asnumpy")),
    ],
    EmulationKind.SKIP: [
        *((getattr(cupy.cuda, owner), "synchronize", _skip_wait) for owner in _WAIT_CLASSES),
        *((cupy.cuda.runtime, name, _skip_wait) for name in ("deviceSynchronize", "streamSynchronize")),
    ],
    EmulationKind.LOCK: [(cupy, name, _convert_prepared) for name in _CONVERSIONS],
    EmulationKind.NARROW: [(cupy, name, _convert_prepared) for name in _CONVERSIONS],
    EmulationKind.PREFETCH: [(cupy, name, _prefetch_conversion) for name in _CONVERSIONS],
}
