"""Operations of JAX that run one by one, outside of compiled code: how many each line starts.

There is no single door. What `jax.grad` and `jax.vmap` take apart, and `jax.lax`, comes as primitives; operators and
`jnp` are jitted functions of JAX's own, which run in C++ from end to end: those are counted where they are called.
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import FunctionType
from typing import Any

import jax
from jax import numpy as jnp
from jax._src import core
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.op_counter import TINY_NS, Counting, Counts
from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "watch_operations"]

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
_HOST = ("array", "asarray", "from_dlpack", "frombuffer", "fromfile", "fromiter", "load", "save", "savez")  # uploads
_SEVERAL = (list, tuple)  # arrays that one operation gives
_COMPILED = type(jax.jit(lambda: None))
_context: Any = getattr(core, "trace_ctx", None)  # versions before 0.4.36 have none


def watch_operations(patches: Patches) -> None:
    if _context is None:
        patches.ledger.note(f"{API} are not watched: this version has no trace_ctx.")
        return
    operations = _Operations(patches.ledger)
    patches.replace(core.EvalTrace, "process_primitive", operations.primitive, api=API)
    for name in (*_OPERATORS, *_METHODS):
        patches.replace(ArrayImpl, name, operations.method, api=API)
    for module in (jnp, jax.nn):
        for name in _functions_of(module):
            patches.replace(module, name, operations.function, api=API)
    patches.undo_with(operations.counting.stop, api=API)


def _functions_of(module: Any) -> Iterator[str]:
    """Functions of a module that are operations, perhaps: whether one gives an array is looked at when it is called."""
    kinds = (_COMPILED, FunctionType, jnp.ufunc, jax.custom_jvp)
    for name, value in vars(module).items():
        if not name.startswith("_") and name not in _HOST and isinstance(value, kinds):
            yield name


class _Operations:
    """Counts the outermost of operations that call each other."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.counting = Counting(ledger, API)  # who imported an operation by its name keeps the hook for good

    def primitive(self, original: Any) -> Any:
        return self._counted(original, is_primitive=True)

    def method(self, original: Any) -> Any:
        return self._counted(original)

    def function(self, original: Any) -> Any:
        return _Function(original, self._counted(original))

    def _counted(self, original: Any, *, is_primitive: bool = False) -> Callable[..., Any]:
        """Inside of grad and vmap it is primitives that count. What an operation reads is to be seen beside it."""
        thread, look, plainly = self.counting.thread, self._look, core.EvalTrace

        def hook(*args: Any, **kwargs: Any) -> Any:
            counts = thread.counts
            if counts.inside or not (is_primitive or type(_context.trace) is plainly):
                return original(*args, **kwargs)
            counts.inside = True
            try:
                if counts.left > 1:
                    counts.left -= 1
                    return original(*args, **kwargs)
                return look(counts, original, args, kwargs)
            finally:
                counts.inside = False

        return hook

    def _look(self, counts: Counts, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.counting.on or not self._ledger.is_open():
            self.counting.pause(counts)
            return original(*args, **kwargs)
        start = perf_counter_ns()
        result = original(*args, **kwargs)
        end = perf_counter_ns()
        try:
            self._ran(counts, result, start, end)
        except Exception as error:
            self._ledger.failed(API, error)
        return result

    def _ran(self, counts: Counts, result: Any, start: int, end: int) -> None:
        """A call is over when its work is queued: what a tiny operation takes, any other takes to be called.

        What gives no array is about something else.
        """
        if counts.left:
            counts.pass_over(end)
        elif type(result) is ArrayImpl or (type(result) in _SEVERAL and result and type(result[0]) is ArrayImpl):
            self.counting.look(counts, start, end, min(end - start, TINY_NS))


class _Function(StandIn):
    """In the place of a function of `jnp`."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        super().__init__(original)
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)
