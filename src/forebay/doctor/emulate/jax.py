"""Emulations for JAX: hooks that replace uploads, read-backs, waits and callbacks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.experimental
import numpy as np
from jax import numpy as jnp
from jax._src import xla_bridge
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import has_host_array
from forebay.doctor.capture.hooks.jax.jit import is_tracing
from forebay.doctor.capture.hooks.jax.settings import CONTEXTS, SWITCHES
from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.emulate.emulator import Emulator, skip_read
from forebay.doctor.emulate.transfers import narrow
from forebay.doctor.model.emulation import EmulationKind

__all__ = ["install", "wait"]

# Methods that read a value back to the host.
_READS = (
    *("item", "tolist", "tobytes", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__array__"),
    *("__format__", "__repr__", "__str__"),
)

Function = Callable[..., Any]  # a function of JAX
MakeHook = Callable[[Emulator, Function], Function]  # (emulator, original) -> hook

_asarray = jnp.asarray  # the original, before any hook


def install(emulator: Emulator) -> None:
    """Replace the functions that `_CALLS` lists for the kind of the emulation.

    For the kind OFF, replace the functions that switch a debug setting or add a callback.
    """
    emulator.settings.disable(emulator.patches, SWITCHES, CONTEXTS)
    _leave_out_callbacks(emulator)
    for owner, name, make_hook in _CALLS.get(emulator.kind, ()):
        emulator.patches.replace(owner, name, partial(make_hook, emulator), api=name)


def wait() -> None:
    """Wait for all arrays.

    Do nothing if JAX has not initialised its devices yet, because `live_arrays` would initialise them.
    """
    for array in jax.live_arrays() if xla_bridge.backends_are_initialized() else ():
        if not array.is_deleted():
            array.block_until_ready()


def _prepare_or_prefetch(emulator: Emulator, upload: Function) -> Function:
    """Return a hook that narrows data before uploads, or starts uploads one step early.

    NARROW and PREFETCH share this hook; `prepared` acts only for NARROW, and `prefetch` only for PREFETCH. The first
    narrowed array replaces all later data of its shape and dtype, so that only the first upload pays for narrowing.
    The values are then wrong, but an emulation measures only the step time. See `PreparedUploads`.
    """

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or type(args[0]) is not np.ndarray or is_tracing():
            return upload(*args, **kwargs)
        data = emulator.prepared.substitute(args[0], narrow)
        return emulator.prefetch.upload(partial(upload, data, *args[1:], **kwargs), data, _start_upload)

    return hook


def _start_upload(upload: Function) -> Function:
    """Start an upload; return a function that returns the array.

    JAX uploads asynchronously. A computation on the array waits for the upload.
    """
    array = upload()
    return lambda: array


def _reuse_conversion(emulator: Emulator, convert: Function) -> Function:
    """Return a hook for `jnp.asarray` or `jnp.array` that reuses the result of an earlier conversion."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        run_original = partial(convert, *args, **kwargs)
        if not args or isinstance(args[0], jax.Array) or is_tracing():
            return run_original()
        data, *options = args
        return emulator.uploads.upload(run_original, data, convert, *options, *kwargs.items(), is_reusable=_is_usable)

    return hook


def _reuse_put(emulator: Emulator, put: Function) -> Function:
    """Return a hook for `jax.device_put` that reuses earlier uploads, leaf by leaf.

    Calls with a tree of devices run as written.
    """

    def hook(*args: Any, **kwargs: Any) -> Any:
        device = args[1] if len(args) > 1 else kwargs.get("device")
        if not args or is_tracing() or isinstance(device, dict | list | tuple):
            return put(*args, **kwargs)
        tree, *options = args

        def put_leaf(leaf: Any) -> Any:
            run_original = partial(put, leaf, *options, **kwargs)
            if isinstance(leaf, jax.Array):
                return run_original()
            return emulator.uploads.upload(run_original, leaf, put, *options, *kwargs.items(), is_reusable=_is_usable)

        return jax.tree_util.tree_map(put_leaf, tree)

    return hook


def _replace_jit(emulator: Emulator, jit: Function) -> Function:
    """Return a hook for `jax.jit` that wraps each jitted function in `_EmulatedJit`.

    `jax.jit` without a function returns a decorator, so the hook wraps the decorator.
    """

    def hook(*args: Any, **kwargs: Any) -> Any:
        jitted = jit(*args, **kwargs)
        if hasattr(jitted, "lower"):
            return _EmulatedJit(jitted, emulator)
        return lambda function: _EmulatedJit(jitted(function), emulator)

    return hook


class _EmulatedJit(FunctionProxy):
    """A jitted function that gets reused or narrowed arrays instead of NumPy arguments."""

    def __init__(self, original: Any, emulator: Emulator) -> None:
        super().__init__(original)
        self._emulator = emulator

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_tracing() or not has_host_array(jax.tree_util.tree_leaves((args, kwargs))):
            return self._original(*args, **kwargs)
        new_args, new_kwargs = jax.tree_util.tree_map(self._replace_leaf, (args, kwargs))
        return self._original(*new_args, **new_kwargs)

    def _replace_leaf(self, leaf: Any) -> Any:
        """Return the argument to pass: a reused device array, a narrowed array, or the leaf."""
        if type(leaf) is not np.ndarray:
            return leaf
        leaf = self._emulator.prepared.substitute(leaf, narrow)
        if not self._emulator.uploads.should_replace(leaf):
            return leaf
        return self._emulator.uploads.upload(partial(_asarray, leaf), leaf, "jit", is_reusable=_is_usable)


def _is_usable(array: Any) -> bool:
    """Whether this is a JAX array that still has memory.

    A jitted function deletes the memory of donated arguments.
    """
    return isinstance(array, ArrayImpl) and not array.is_deleted()


def _skip_device_get(emulator: Emulator, get: Function) -> Function:
    """Return a hook for `jax.device_get` that skips most read-backs, leaf by leaf."""

    def hook(x: Any) -> Any:  # a script may pass `x=`, as to `jax.device_get`
        def get_leaf(leaf: Any) -> Any:
            return emulator.reads.read(partial(get, leaf), "device_get", leaf)

        return jax.tree_util.tree_map(get_leaf, x)

    return hook


def _skip_wait(emulator: Emulator, wait: Function) -> Function:
    """Return a hook that skips most waits. A skipped wait returns its first argument."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("x")
        return emulator.reads.wait(partial(wait, *args, **kwargs), "block_until_ready", first)

    return hook


def _leave_out_callbacks(emulator: Emulator) -> None:
    """Replace the function that adds a callback, if the emulation leaves this callback out."""
    for api, owner, name in (
        ("jax.debug.print", jax.debug, "print"),
        ("jax.debug.callback", jax.debug, "callback"),
    ):
        if emulator.settings.setting == api:
            emulator.patches.replace(owner, name, partial(_leave_out, emulator), api=name)
    for api, owner, name in (
        ("jax.pure_callback", jax, "pure_callback"),
        ("jax.experimental.io_callback", jax.experimental, "io_callback"),
    ):
        if emulator.settings.setting == api:
            emulator.patches.replace(owner, name, partial(_return_zeros, emulator), api=name)


def _leave_out(emulator: Emulator, original: Any) -> Any:
    """Return a hook that does nothing on the target line."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or not emulator.is_target_calling():
            return original(*args, **kwargs)
        emulator.settings.replaced += 1
        return None

    return hook


def _return_zeros(emulator: Emulator, original: Any) -> Any:
    """Return a hook that returns zeros on the target line, instead of adding a callback."""

    def hook(callback: Any, result_shape_dtypes: Any, *args: Any, **kwargs: Any) -> Any:
        if not emulator.is_target_calling():
            return original(callback, result_shape_dtypes, *args, **kwargs)
        emulator.settings.replaced += 1
        return jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), result_shape_dtypes)

    return hook


# Owner, name and hook of each call to replace.
_UPLOADS: list[tuple[Any, str, MakeHook]] = [
    (jnp, "asarray", _reuse_conversion),
    (jnp, "array", _reuse_conversion),
    (jax, "device_put", _reuse_put),
    (jax, "jit", _replace_jit),
]
_UPLOADS_WITHOUT_JIT = _UPLOADS[:3]
_CALLS: dict[EmulationKind, list[tuple[Any, str, MakeHook]]] = {
    EmulationKind.RESIDENT: _UPLOADS,
    EmulationKind.REMEMBER: _UPLOADS,
    EmulationKind.REUSE: _UPLOADS,
    EmulationKind.DEFER: [
        *((ArrayImpl, name, partial(skip_read, name)) for name in _READS),
        (jax, "device_get", _skip_device_get),
    ],
    EmulationKind.NARROW: [
        *((owner, name, _prepare_or_prefetch) for owner, name, _ in _UPLOADS_WITHOUT_JIT),
        (jax, "jit", _replace_jit),
    ],
    EmulationKind.PREFETCH: [(owner, name, _prepare_or_prefetch) for owner, name, _ in _UPLOADS_WITHOUT_JIT],
    EmulationKind.SKIP: [
        (jax, "block_until_ready", _skip_wait),
        (jax, "effects_barrier", _skip_wait),
        (ArrayImpl, "block_until_ready", _skip_wait),
    ],
}
