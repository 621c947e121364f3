"""JAX: which of its calls upload, read or wait, and how each is made otherwise. Jitted functions stay jitted."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax._src import xla_bridge
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import has_data
from forebay.doctor.capture.hooks.jax.jit import is_traced
from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Way

__all__ = ["install", "wait"]

_READS = (
    *("item", "tolist", "tobytes", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__array__"),
    *("__format__", "__repr__", "__str__"),
)

Function = Callable[..., Any]  # of JAX's
Make = Callable[[Emulator, Function], Function]

_asarray = jnp.asarray  # as it is without us


def install(emulator: Emulator) -> None:
    for owner, name, make in _CALLS.get(emulator.way, ()):
        emulator.patches.replace(owner, name, partial(make, emulator), api=name)


def wait() -> None:
    """Where it is used at all: to ask is to take the device."""
    for array in jax.live_arrays() if xla_bridge.backends_are_initialized() else ():
        if not array.is_deleted():
            array.block_until_ready()


def _preparing(emulator: Emulator, upload: Function) -> Function:
    """Conversions and puts of arrays that are narrowed before, or on their way a step ahead."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not np.ndarray or is_traced():
            return upload(*args, **kwargs)
        data = emulator.substitutes.instead(args[0], _narrow)
        return emulator.ahead.instead(partial(upload, data, *args[1:], **kwargs), data, _begin)

    return hook


def _narrow(data: Any) -> Any:
    return data.astype("float32") if data.dtype == "float64" else data


def _begin(upload: Function) -> Function:
    """It is on its way by itself, and whoever computes on it waits for it."""
    array = upload()
    return lambda: array


def _converting(emulator: Emulator, convert: Function) -> Function:
    """`jnp.asarray` and the like."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        again = partial(convert, *args, **kwargs)
        if not args or isinstance(args[0], jax.Array) or is_traced():
            return again()
        data, *asked = args
        return emulator.uploads.instead(again, data, convert, *asked, *kwargs.items(), keep=_is_there)

    return hook


def _putting(emulator: Emulator, put: Function) -> Function:
    """`jax.device_put`, where all that is put goes to one place."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or is_traced() or isinstance(args[1] if len(args) > 1 else None, dict | list | tuple):
            return put(*args, **kwargs)
        tree, *asked = args

        def one(leaf: Any) -> Any:
            again = partial(put, leaf, *asked, **kwargs)
            if isinstance(leaf, jax.Array):
                return again()
            return emulator.uploads.instead(again, leaf, put, *asked, *kwargs.items(), keep=_is_there)

        return jax.tree_util.tree_map(one, tree)

    return hook


def _jitting(emulator: Emulator, jit: Function) -> Function:
    """A `jit` whose functions are given arrays of JAX's in place of NumPy's; without a function it is a decorator."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        made = jit(*args, **kwargs)
        if hasattr(made, "lower"):
            return _Jitted(made, emulator)
        return lambda function: _Jitted(made(function), emulator)

    return hook


class _Jitted(StandIn):
    """In the place of a jitted function."""

    def __init__(self, original: Any, emulator: Emulator) -> None:
        super().__init__(original)
        self._emulator = emulator

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_traced() or not has_data(jax.tree_util.tree_leaves((args, kwargs))):
            return self._original(*args, **kwargs)
        given, named = jax.tree_util.tree_map(self._there, (args, kwargs))
        return self._original(*given, **named)

    def _there(self, leaf: Any) -> Any:
        """The array on the device, where it is to be known again; else whatever was given."""
        if type(leaf) is not np.ndarray:
            return leaf
        leaf = self._emulator.substitutes.instead(leaf, _narrow)
        if not self._emulator.uploads.are_meant(leaf):
            return leaf
        return self._emulator.uploads.instead(partial(_asarray, leaf), leaf, "jit", keep=_is_there)


def _is_there(array: Any) -> bool:
    """A function that was given it may have taken its memory for its result."""
    return isinstance(array, ArrayImpl) and not array.is_deleted()


def _reading(name: str, emulator: Emulator, read: Function) -> Function:
    def hook(array: Any, *asked: Any, **kwargs: Any) -> Any:
        return emulator.reads.instead(partial(read, array, *asked, **kwargs), name, array)

    return hook


def _getting(emulator: Emulator, get: Function) -> Function:
    """`jax.device_get`, of a tree."""

    def hook(tree: Any) -> Any:
        def one(leaf: Any) -> Any:
            return emulator.reads.instead(partial(get, leaf), "device_get", leaf)

        return jax.tree_util.tree_map(one, tree)

    return hook


def _waiting(emulator: Emulator, wait: Function) -> Function:
    def hook(*args: Any) -> Any:
        return emulator.reads.waited(partial(wait, *args), "block_until_ready", args[0] if args else None)

    return hook


_UPLOADS: list[tuple[Any, str, Make]] = [
    (jnp, "asarray", _converting),
    (jnp, "array", _converting),
    (jax, "device_put", _putting),
    (jax, "jit", _jitting),
]
_CALLS: dict[Way, list[tuple[Any, str, Make]]] = {
    Way.RESIDENT: _UPLOADS,
    Way.REMEMBER: _UPLOADS,
    Way.REUSE: _UPLOADS,
    Way.DEFER: [
        *((ArrayImpl, name, partial(_reading, name)) for name in _READS),
        (jax, "device_get", _getting),
    ],
    Way.NARROW: [*((owner, name, _preparing) for owner, name, _ in _UPLOADS[:3]), (jax, "jit", _jitting)],
    Way.AHEAD: [(owner, name, _preparing) for owner, name, _ in _UPLOADS[:3]],
    Way.SKIP: [
        (jax, "block_until_ready", _waiting),
        (jax, "effects_barrier", _waiting),
        (ArrayImpl, "block_until_ready", _waiting),
    ],
}
