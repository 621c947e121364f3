"""Hooks for uploads outside of jitted functions: `jax.device_put`, conversions, and operations with NumPy arrays."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import (
    describe_array,
    describe_converted,
    describe_host_data,
    device_of,
    estimate_upload_end,
    first_device,
    has_host_array,
    host_arrays_in,
)
from forebay.doctor.capture.hooks.jax.jit import is_tracing
from forebay.doctor.capture.hooks.pieces import count_pieces, first_leaf
from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import OnReturn, Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = ["hook_joins", "hook_uploads"]

_PUT_API = "jax.device_put"
# Functions of jnp that scripts often call with NumPy data.
_OPERATIONS = (
    *("abs", "argmax", "argmin", "clip", "concatenate", "dot", "einsum", "exp", "isfinite", "isnan", "log", "matmul"),
    *("max", "mean", "median", "min", "pad", "reshape", "sort", "sqrt", "square", "stack", "std", "sum", "take"),
    *("tensordot", "transpose", "var", "where"),
)
# Functions of jnp that join the arrays of a list. If all arrays are NumPy arrays, the whole call counts as an
# upload: JAX uploads each array on its own, although `np.stack` could join the arrays on the host first.
_JOINS = ("column_stack", "concatenate", "dstack", "hstack", "stack", "vstack")
_OPERATOR_API = "array operators"  # API name of the hooks of all operators; notes about these hooks contain it
# Methods of operators that scripts often use with a NumPy array -> API name in events.
_OPERATORS = {
    f"__{side}{name}__": f"array {sign} numpy"
    for name, sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@"}.items()
    for side in ("", "r")
} | {f"__{name}__": f"array {sign} numpy" for name, sign in {"eq": "==", "lt": "<", "gt": ">"}.items()}


def hook_uploads(patches: Patches) -> None:
    for name in ("asarray", "array"):
        patches.hook(jnp, name, EventKind.UPLOAD, f"jnp.{name}", _describe_conversion)
    ledger = patches.ledger
    on_put = partial(_record_put, ledger)
    patches.replace(jax, "device_put", lambda original: make_hook(ledger, _PUT_API, original, on_put), api=_PUT_API)
    for name in _OPERATIONS:
        api = f"jnp.{name}"
        patches.replace(jnp, name, partial(_JnpUploadProxy, ledger=ledger, api=api), api=api)
    for name, api in _OPERATORS.items():
        patches.hook_apis[api] = _OPERATOR_API
        patches.replace(ArrayImpl, name, partial(_hook_operator, ledger, api), api=_OPERATOR_API)


def hook_joins(patches: Patches) -> None:
    for name in _JOINS:
        api = f"jnp.{name}"
        patches.replace(jnp, name, partial(_JoinProxy, ledger=patches.ledger, api=api), api=api)


def _describe_conversion(result: Any, *args: Any, **kwargs: Any) -> tuple[int, dict[str, Any] | None] | None:
    """Describe the upload of host data; None for (lists of) device arrays and traced calls."""
    data = args[0] if args else kwargs.get("a", kwargs.get("object"))
    if not isinstance(result, ArrayImpl) or is_tracing() or isinstance(first_leaf(data), jax.Array):
        return None
    return result.nbytes, describe_converted(result, data)


def _record_put(
    ledger: Ledger, start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record one event for all uploaded arrays, and one for all moved arrays."""
    if is_tracing():
        return
    tree = args[0] if args else kwargs["x"]
    host_arrays = host_arrays_in(tree)
    if host_arrays:
        nbytes, detail = describe_host_data(host_arrays, first_device(result))
        ledger.add(EventKind.UPLOAD, _PUT_API, start, end=end, nbytes=nbytes, detail=detail)
    pairs = zip(jax.tree_util.tree_leaves(tree), jax.tree_util.tree_leaves(result), strict=True)
    moved = [(old, new) for old, new in pairs if isinstance(old, ArrayImpl) and device_of(old) != device_of(new)]
    if moved:
        nbytes, largest = sum(old.nbytes for old, _ in moved), max(moved, key=lambda pair: int(pair[0].nbytes))
        ledger.add(EventKind.MOVE, _PUT_API, start, end=end, nbytes=nbytes, detail=_describe_move(*largest))


def _describe_move(old: Any, new: Any) -> dict[str, Any]:
    detail = dict(describe_array(new))
    return {"op": "device_put", "source": device_of(old), "target": detail.pop("device"), **detail}


class _JoinProxy(FunctionProxy):
    """Replaces a function of `jnp` that joins arrays, and records joins of NumPy arrays."""

    def __init__(self, original: Any, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._call = make_hook(ledger, api, original, _make_join_writer(ledger, api))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (self._call if args and count_pieces(args[0]) else self._original)(*args, **kwargs)


def _make_join_writer(ledger: Ledger, api: str) -> OnReturn:
    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_tracing():
            return
        detail = describe_converted(result, args[0])
        ledger.write((EventKind.UPLOAD, api, ledger.lines.current_line()), start, end, result.nbytes, detail=detail)

    return write


class _JnpUploadProxy(FunctionProxy):
    """Replaces a function of `jnp` and records calls with positional NumPy arguments.

    Checking the arguments adds 0.3 us to each call.
    """

    def __init__(self, original: Any, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._call = make_hook(ledger, api, original, _make_writer(ledger, api))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (self._call if has_host_array(_array_arguments(args)) else self._original)(*args, **kwargs)


def _hook_operator(ledger: Ledger, api: str, original: Any) -> Any:
    """Return a hook that records an operator if the other operand is a NumPy array.

    Single numbers are not recorded.
    """
    call = make_hook(ledger, api, original, _make_writer(ledger, api))

    def operator(array: Any, other: Any) -> Any:
        return (call if type(other) is np.ndarray and other.ndim else original)(array, other)

    return operator


def _array_arguments(args: tuple[Any, ...]) -> Any:
    """Return the positional arguments.

    If the first is a list or a tuple, as in `jnp.stack`, return its items instead.
    """
    return args[0] if args and type(args[0]) in (list, tuple) else args


def _make_writer(ledger: Ledger, api: str) -> OnReturn:
    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_tracing():
            return
        nbytes, detail = describe_host_data(host_arrays_in(_array_arguments(args)), first_device(result))
        upload_end = estimate_upload_end(start, end, nbytes)
        ledger.write((EventKind.UPLOAD, api, ledger.lines.current_line()), start, upload_end, nbytes, detail=detail)

    return write
