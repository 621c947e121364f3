"""CuPy: which of its calls upload, read or wait, and how each is made otherwise."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Way

__all__ = ["install", "wait"]

_READS = (
    *("get", "item", "tolist", "__bool__", "__float__", "__int__", "__complex__", "__repr__", "__str__"),
    "__format__",
)
_CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray")
_WAITS = ("Stream", "ExternalStream", "Event")

Function = Callable[..., Any]  # of CuPy's
Make = Callable[[Emulator, Function], Function]


def install(emulator: Emulator) -> None:
    for owner, name, make in _CALLS[emulator.way]:
        emulator.patches.replace(owner, name, partial(make, emulator), api=name)


def wait() -> None:
    cupy.cuda.runtime.deviceSynchronize()


def _converting(emulator: Emulator, convert: Function) -> Function:
    def hook(data: Any, *asked: Any, **kwargs: Any) -> Any:
        again = partial(convert, data, *asked, **kwargs)
        if hasattr(data, "__cuda_array_interface__"):
            return again()
        return emulator.uploads.instead(again, data, convert, *asked, *kwargs.items())

    return hook


def _setting(emulator: Emulator, put: Function) -> Function:
    """`array.set(data)`: what is there already need not come again."""

    def hook(array: Any, data: Any, *asked: Any, **kwargs: Any) -> None:
        def again() -> bool:
            put(array, data, *asked, **kwargs)
            return True

        emulator.uploads.instead(again, data, put, id(array))

    return hook


def _sending(emulator: Emulator, convert: Function) -> Function:
    """A conversion of what was locked or narrowed before."""

    def hook(data: Any, *asked: Any, **kwargs: Any) -> Any:
        sent = emulator.substitutes.instead(data, _PREPARATIONS[emulator.way]) if type(data) is np.ndarray else data
        return convert(sent, *asked, **kwargs)

    return hook


def _lock(data: Any) -> Any:
    memory = cupy.cuda.alloc_pinned_memory(data.nbytes)
    locked = np.frombuffer(memory, data.dtype, data.size).reshape(data.shape)
    locked[...] = data
    return locked


def _narrow(data: Any) -> Any:
    return data.astype("float32") if data.dtype == "float64" else data


_PREPARATIONS = {Way.LOCK: _lock, Way.NARROW: _narrow}


def _converting_ahead(emulator: Emulator, convert: Function) -> Function:
    def hook(data: Any, *asked: Any, **kwargs: Any) -> Any:
        again = partial(convert, data, *asked, **kwargs)
        return emulator.ahead.instead(again, data, _begin) if type(data) is np.ndarray else again()

    return hook


def _begin(convert: Function) -> Function:
    """On a stream of its own; whoever takes the array has his stream wait for it."""
    with _copies():
        array, arrived = convert(), cupy.cuda.Event()
        arrived.record()
    return partial(_taken, array, arrived)


def _taken(array: Any, arrived: Any) -> Any:
    cupy.cuda.get_current_stream().wait_event(arrived)
    return array


@cache
def _copies() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def _reading(name: str, emulator: Emulator, read: Function) -> Function:
    def hook(array: Any, *asked: Any, **kwargs: Any) -> Any:
        return emulator.reads.instead(partial(read, array, *asked, **kwargs), name, array)

    return hook


def _waiting(emulator: Emulator, wait: Function) -> Function:
    def hook(*args: Any, **kwargs: Any) -> Any:
        return emulator.reads.waited(partial(wait, *args, **kwargs), "synchronize")

    return hook


_UPLOADS: list[tuple[Any, str, Make]] = [(cupy, name, _converting) for name in _CONVERSIONS]
_UPLOADS += [(cupy.ndarray, "set", _setting)]
_CALLS: dict[Way, list[tuple[Any, str, Make]]] = {
    Way.RESIDENT: _UPLOADS,
    Way.REMEMBER: _UPLOADS,
    Way.REUSE: _UPLOADS,
    Way.DEFER: [
        *((cupy.ndarray, name, partial(_reading, name)) for name in _READS),
        (cupy, "asnumpy", partial(_reading, "asnumpy")),
    ],
    Way.SKIP: [
        *((getattr(cupy.cuda, owner), "synchronize", _waiting) for owner in _WAITS),
        *((cupy.cuda.runtime, name, _waiting) for name in ("deviceSynchronize", "streamSynchronize")),
    ],
    Way.LOCK: [(cupy, name, _sending) for name in _CONVERSIONS],
    Way.NARROW: [(cupy, name, _sending) for name in _CONVERSIONS],
    Way.AHEAD: [(cupy, name, _converting_ahead) for name in _CONVERSIONS],
}
