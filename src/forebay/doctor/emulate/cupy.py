"""Emulations for CuPy: which of its calls upload, read or wait, and how each is replaced."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

_READS = (
    *("get", "item", "tolist", "__bool__", "__float__", "__int__", "__complex__", "__repr__", "__str__"),
    "__format__",
)
_CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray")
_WAITS = ("Stream", "ExternalStream", "Event")

Function = Callable[..., Any]  # a function of CuPy
MakeHook = Callable[[Emulator, Function], Function]


def install(emulator: Emulator) -> None:
    for owner, name, make in _CALLS[emulator.kind]:
        emulator.patches.replace(owner, name, partial(make, emulator), api=name)


def wait() -> None:
    cupy.cuda.runtime.deviceSynchronize()


def _reuse_conversion(emulator: Emulator, convert: Function) -> Function:
    def hook(data: Any, *options: Any, **kwargs: Any) -> Any:
        run_original = partial(convert, data, *options, **kwargs)
        if hasattr(data, "__cuda_array_interface__"):
            return run_original()
        return emulator.uploads.upload(run_original, data, convert, *options, *kwargs.items())

    return hook


def _reuse_set(emulator: Emulator, put: Function) -> Function:
    """Skip `array.set(data)` if the array holds the data already."""

    def hook(array: Any, data: Any, *options: Any, **kwargs: Any) -> None:
        def run_original() -> bool:
            put(array, data, *options, **kwargs)
            return True

        emulator.uploads.upload(run_original, data, put, id(array))

    return hook


def _convert_prepared(emulator: Emulator, convert: Function) -> Function:
    """Convert data that was page-locked or narrowed before."""

    def hook(data: Any, *options: Any, **kwargs: Any) -> Any:
        prepare = _PREPARATIONS[emulator.kind]
        sent = emulator.prepared.substitute(data, prepare) if type(data) is np.ndarray else data
        return convert(sent, *options, **kwargs)

    return hook


def _lock(data: Any) -> Any:
    memory = cupy.cuda.alloc_pinned_memory(data.nbytes)
    locked = np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)
    locked[...] = data
    return locked


def _narrow(data: Any) -> Any:
    return data.astype("float32") if data.dtype == "float64" else data


_PREPARATIONS = {EmulationKind.LOCK: _lock, EmulationKind.NARROW: _narrow}


def _prefetch_conversion(emulator: Emulator, convert: Function) -> Function:
    def hook(data: Any, *options: Any, **kwargs: Any) -> Any:
        run_original = partial(convert, data, *options, **kwargs)
        if type(data) is not np.ndarray:
            return run_original()
        return emulator.prefetch.upload(run_original, data, _start_copy)

    return hook


def _start_copy(convert: Function) -> Function:
    """Copy on a separate stream; the stream that takes the array waits for the copy."""
    with _copy_stream():
        array, arrived = convert(), cupy.cuda.Event()
        arrived.record()
    return partial(_take, array, arrived)


def _take(array: Any, arrived: Any) -> Any:
    cupy.cuda.get_current_stream().wait_event(arrived)
    return array


@cache
def _copy_stream() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def _skip_read(name: str, emulator: Emulator, read: Function) -> Function:
    def hook(array: Any, *options: Any, **kwargs: Any) -> Any:
        return emulator.reads.read(partial(read, array, *options, **kwargs), name, array)

    return hook


def _skip_wait(emulator: Emulator, wait: Function) -> Function:
    def hook(*args: Any, **kwargs: Any) -> Any:
        return emulator.reads.wait(partial(wait, *args, **kwargs), "synchronize")

    return hook


_UPLOADS: list[tuple[Any, str, MakeHook]] = [(cupy, name, _reuse_conversion) for name in _CONVERSIONS]
_UPLOADS += [(cupy.ndarray, "set", _reuse_set)]
_CALLS: dict[EmulationKind, list[tuple[Any, str, MakeHook]]] = {
    EmulationKind.RESIDENT: _UPLOADS,
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.DEFER: [
        *((cupy.ndarray, name, partial(_skip_read, name)) for name in _READS),
        (cupy, "asnumpy", partial(_skip_read, "asnumpy")),
    ],
    EmulationKind.SKIP: [
        *((getattr(cupy.cuda, owner), "synchronize", _skip_wait) for owner in _WAITS),
        *((cupy.cuda.runtime, name, _skip_wait) for name in ("deviceSynchronize", "streamSynchronize")),
    ],
    EmulationKind.LOCK: [(cupy, name, _convert_prepared) for name in _CONVERSIONS],
    EmulationKind.NARROW: [(cupy, name, _convert_prepared) for name in _CONVERSIONS],
    EmulationKind.PREFETCH: [(cupy, name, _prefetch_conversion) for name in _CONVERSIONS],
}
