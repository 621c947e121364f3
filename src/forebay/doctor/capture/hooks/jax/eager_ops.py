"""Hooks that count the eager operations of JAX that each line of the script starts.

JAX has no single entry point for eager operations. `jax.lax`, `jax.grad` and `jax.vmap` run primitives, and one hook
covers all primitives. Operators and functions of `jnp` and `jax.random` are jitted functions that run in C++, so each
gets its own hook.
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import FunctionType
from typing import Any

import jax
from jax import numpy as jnp
from jax._src import core
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.op_counter import TINY_NS, OpCounter, ThreadOps
from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "hook_operations"]

API = "jax operations"

_BINARY = ("add", "and", "floordiv", "matmul", "mod", "mul", "or", "pow", "sub", "truediv", "xor")
_OPERATORS = (
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r")),
    *(f"__{name}__" for name in ("abs", "eq", "ge", "getitem", "gt", "invert", "le", "lt", "ne", "neg")),
)
_METHODS = (
    *("all", "any", "argmax", "argmin", "astype", "clip", "cumprod", "cumsum", "dot", "flatten", "max", "mean", "min"),
    *("prod", "ravel", "repeat", "reshape", "round", "sort", "squeeze", "std", "sum", "swapaxes", "take", "transpose"),
    "var",
)
# Functions of jnp that are not operations: they import or upload data, or access files.
_EXCLUDED_FUNCTIONS = ("array", "asarray", "from_dlpack", "frombuffer", "fromfile", "fromiter", "load", "save", "savez")
_SEQUENCES = (list, tuple)  # types of the result of an operation that returns several arrays
_JITTED_TYPE = type(jax.jit(lambda: None))
_trace_context: Any = getattr(core, "trace_ctx", None)  # None before JAX 0.4.36


def hook_operations(patches: Patches) -> None:
    if _trace_context is None:
        patches.ledger.note(
            f"{API} are not recorded: this version of JAX has no trace_ctx. Install JAX 0.4.36 or newer."
        )
        return
    eager_ops = _EagerOps(patches.ledger)
    patches.replace(core.EvalTrace, "process_primitive", eager_ops.hook_primitive, api=API)
    for name in (*_OPERATORS, *_METHODS):
        patches.replace(ArrayImpl, name, eager_ops.hook_method, api=API)
    for module in (jnp, jnp.linalg, jax.nn, jax.random):
        for name in _function_names(module):
            patches.replace(module, name, eager_ops.hook_function, api=API)
    patches.add_undo(eager_ops.counter.stop, api=API)


def _function_names(module: Any) -> Iterator[str]:
    """Yield the names of functions that may be operations.

    Some of them are not operations. At each sample, the hook checks whether the call returned an array.
    """
    function_types = (_JITTED_TYPE, FunctionType, jnp.ufunc, jax.custom_jvp)
    for name, value in vars(module).items():
        if not name.startswith("_") and name not in _EXCLUDED_FUNCTIONS and isinstance(value, function_types):
            yield name


class _EagerOps:
    """Counts operations. Of operations that call each other, it counts only the outermost."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # The hooks check `counter.is_on`: a function that the script imported by name stays hooked after the session.
        self.counter = OpCounter(ledger, API)

    def hook_primitive(self, original: Any) -> Any:
        return self._make_hook(original, is_primitive=True)

    def hook_method(self, original: Any) -> Any:
        return self._make_hook(original)

    def hook_function(self, original: Any) -> Any:
        return _JnpFunctionProxy(original, self._make_hook(original))

    def _make_hook(self, original: Any, *, is_primitive: bool = False) -> Callable[..., Any]:
        """Return a hook that counts the calls of an operation.

        Inside `jax.grad` and `jax.vmap`, only primitives run eagerly and are counted.
        """
        thread, call_and_sample, eager_trace = self.counter.thread, self._call_and_sample, core.EvalTrace

        def hook(*args: Any, **kwargs: Any) -> Any:
            ops = thread.ops
            if ops.is_in_op or not (is_primitive or type(_trace_context.trace) is eager_trace):
                return original(*args, **kwargs)
            ops.is_in_op = True
            try:
                if ops.ops_until_sample > 1:
                    ops.ops_until_sample -= 1
                    return original(*args, **kwargs)
                return call_and_sample(ops, original, args, kwargs)
            finally:
                ops.is_in_op = False

        return hook

    def _call_and_sample(self, ops: ThreadOps, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operation, pass it to `_on_operation` unless recording is off, and return its result."""
        if not self.counter.is_on or not self._ledger.can_begin():
            self.counter.postpone_sample(ops)
            return original(*args, **kwargs)
        start = perf_counter_ns()
        result = original(*args, **kwargs)
        end = perf_counter_ns()
        try:
            self._on_operation(ops, result, start, end)
        except Exception as error:
            self._ledger.note_failure(API, error)
        return result

    def _on_operation(self, ops: ThreadOps, result: Any, start: int, end: int) -> None:
        """Sample a call if a sample is due and the call returned an array.

        A call that returned no array is not an operation; then the next call is sampled instead. JAX returns when the
        work is queued, so the first `TINY_NS` of the call count as calling time.
        """
        if ops.ops_until_sample:
            ops.skip_op(end)
        elif _is_array(result) or (type(result) in _SEQUENCES and result and _is_array(result[0])):
            self.counter.sample(ops, start, end, min(end - start, TINY_NS))


def _is_array(value: Any) -> bool:
    """Whether a value is an array with data, or random keys."""
    return type(value) is ArrayImpl or (isinstance(value, jax.Array) and not isinstance(value, core.Tracer))


class _JnpFunctionProxy(FunctionProxy):
    """Replaces a function of `jnp`, `jnp.linalg`, `jax.nn` or `jax.random`."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        super().__init__(original)
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)
