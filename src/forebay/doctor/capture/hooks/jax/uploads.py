"""Host data that becomes JAX's outside jitted functions: put on a device, converted, or given to an operation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import numpy as jnp
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import (
    about,
    arrived,
    data_in,
    first_placed,
    has_data,
    incoming,
    placed,
    within_call,
)
from forebay.doctor.capture.hooks.jax.jit import is_traced
from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked
from forebay.doctor.model.events import Kind

__all__ = ["watch_uploads"]

# Operations that people hand their NumPy data to. What they do with device arrays is not looked at.
_OPERATIONS = (
    *("abs", "argmax", "argmin", "clip", "concatenate", "dot", "einsum", "exp", "isfinite", "isnan", "log", "matmul"),
    *("max", "mean", "median", "min", "pad", "reshape", "sort", "sqrt", "square", "stack", "std", "sum", "take"),
    *("tensordot", "transpose", "var", "where"),
)


def watch_uploads(patches: Patches) -> None:
    for name in ("asarray", "array"):
        patches.watch(jnp, name, Kind.UPLOAD, f"jnp.{name}", _converted)
    ledger, put = patches.ledger, "jax.device_put"
    patches.replace(jax, "device_put", lambda original: hooked(ledger, put, original, partial(_put, ledger)), api=put)
    for name in _OPERATIONS:
        patches.replace(jnp, name, _watched_operation(patches.ledger, f"jnp.{name}"), api=f"jnp.{name}")


def _converted(result: Any, *args: Any, **kwargs: Any) -> tuple[int, dict[str, Any] | None] | None:
    """Only what was the host's: a copy of a device array, or a list of some, does not cross."""
    data = args[0] if args else kwargs.get("a", kwargs.get("object"))
    if not isinstance(result, ArrayImpl) or is_traced() or isinstance(_first_of(data), jax.Array):
        return None
    return result.nbytes, arrived(result, data)


def _first_of(data: Any) -> Any:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data


def _put(ledger: Ledger, start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """One event for all that came from the host, one for all that was on another device."""
    if is_traced():
        return
    tree = args[0] if args else kwargs["x"]
    data = data_in(tree)
    if data:
        nbytes, detail = incoming(data, first_placed(result))
        ledger.add(Kind.UPLOAD, "jax.device_put", start, end=end, nbytes=nbytes, detail=detail)
    pairs = zip(jax.tree_util.tree_leaves(tree), jax.tree_util.tree_leaves(result), strict=True)
    moved = [(old, new) for old, new in pairs if isinstance(old, ArrayImpl) and placed(old) != placed(new)]
    if moved:
        nbytes, detail = sum(old.nbytes for old, _ in moved), _moved(*max(moved, key=lambda pair: int(pair[0].nbytes)))
        ledger.add(Kind.MOVE, "jax.device_put", start, end=end, nbytes=nbytes, detail=detail)


def _moved(old: Any, new: Any) -> dict[str, Any]:
    detail = dict(about(new))
    return {"op": "device_put", "source": placed(old), "target": detail.pop("device"), **detail}


def _watched_operation(ledger: Ledger, api: str) -> Callable[[Any], Any]:
    return lambda original: _Operation(original, ledger, api)


class _Operation(StandIn):
    """In the place of an operation of `jnp`: it looks whether it is given NumPy data, which costs a third of a us."""

    def __init__(self, original: Any, ledger: Ledger, api: str) -> None:
        super().__init__(original)
        self._call = hooked(ledger, api, original, partial(_given, ledger, api))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (self._call if has_data(_given_to(args)) else self._original)(*args, **kwargs)


def _given_to(args: tuple[Any, ...]) -> Any:
    """Arrays, or a list of them as of `jnp.stack`."""
    return args[0] if args and type(args[0]) in (list, tuple) else args


def _given(
    ledger: Ledger, api: str, start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if is_traced():
        return
    nbytes, detail = incoming(data_in(_given_to(args)), first_placed(result))
    until = within_call(start, end, nbytes)
    ledger.write(Kind.UPLOAD, api, ledger.lines.here(), start, until, nbytes, detail)
