"""Host data that becomes JAX's outside jitted functions: put on a device, converted, or given to an operation."""

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
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
from forebay.doctor.capture.hooks.jax.functions import is_traced
from forebay.doctor.capture.hooks.stand_in import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.events import Kind

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
    patches.replace(jax, "device_put", _watched_put(patches.ledger), api="jax.device_put")
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


def _watched_put(ledger: Ledger) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def device_put(*args: Any, **kwargs: Any) -> Any:
            if not ledger.enter():
                return original(*args, **kwargs)
            try:
                start = perf_counter_ns()
                result = original(*args, **kwargs)
                end = perf_counter_ns()
                with suppress(Exception):  # what is said of a call must not break it
                    _add_put(ledger, args[0] if args else kwargs["x"], result, start, end)
                return result
            finally:
                ledger.leave()

        return device_put

    return make


def _add_put(ledger: Ledger, tree: Any, result: Any, start: int, end: int) -> None:
    """One event for all that came from the host, one for all that was on another device."""
    if is_traced():
        return
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
        self._ledger = ledger
        self._api = api

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args and type(args[0]) in (list, tuple) else args
        if not has_data(given) or not self._ledger.enter():
            return self._original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = self._original(*args, **kwargs)
            end = perf_counter_ns()
            with suppress(Exception):  # what is said of a call must not break it
                self._add(given, result, start, end)
            return result
        finally:
            self._ledger.leave()

    def _add(self, given: Any, result: Any, start: int, end: int) -> None:
        if is_traced():
            return
        nbytes, detail = incoming(data_in(given), first_placed(result))
        until = within_call(start, end, nbytes)
        self._ledger.add(Kind.UPLOAD, self._api, start, end=until, nbytes=nbytes, detail=detail)
