"""Operations of JAX that run one by one, outside of compiled code: how many each line starts.

There is no single door. What `jax.grad` and `jax.vmap` take apart, and `jax.lax`, comes as primitives; operators and
`jnp` are jitted functions of JAX's own, which run in C++ from end to end: those are counted where they are called.
"""

from collections.abc import Iterator
from time import perf_counter_ns
from types import FunctionType
from typing import Any

import jax
from jax import numpy as jnp
from jax._src import core
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.calls import failed
from forebay.doctor.capture.hooks.counting import TINY_NS, TOGETHER_NS, Counted, Counts
from forebay.doctor.capture.hooks.stand_in import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches

__all__ = ["API", "watch_operations"]

API = "jax operations"
MOST_SPANS = 3000  # of some milliseconds: a loop that nothing marks would be counted to its end

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
    patches.undo_with(operations.stop, api=API)


def _functions_of(module: Any) -> Iterator[str]:
    """Functions of a module that are operations, perhaps: whether one gives an array is looked at when it is called."""
    kinds = (_COMPILED, FunctionType, jnp.ufunc, jax.custom_jvp)
    for name, value in vars(module).items():
        if not name.startswith("_") and name not in _HOST and isinstance(value, kinds):
            yield name


class _Operations:
    """Counts the outermost of operations that call each other."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._on = True  # who imported an operation by its name keeps the hook for good
        self._spans = 0
        self._thread = Counted()

    def primitive(self, original: Any) -> Any:
        def process_primitive(*args: Any) -> Any:
            counts = self.begin()
            if counts is None:
                return original(*args)
            try:
                start = perf_counter_ns()
                result = original(*args)
                self.ran(counts, start, perf_counter_ns())
                return result
            finally:
                counts.inside = False

        return process_primitive

    def method(self, original: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.call(original, args, kwargs)

        return method

    def function(self, original: Any) -> Any:
        return _Function(original, self)

    def call(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside of grad and vmap primitives are counted; and what gives no array is about something else."""
        counts = self.begin() if type(_context.trace) is core.EvalTrace else None
        if counts is None:
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()
            if type(result) is ArrayImpl or (type(result) in _SEVERAL and result and type(result[0]) is ArrayImpl):
                self.ran(counts, start, end)
            return result
        finally:
            counts.inside = False

    def begin(self) -> Counts | None:
        """None inside another operation or hook. The ledger is left open: what an operation reads is to be seen."""
        counts = self._thread.counts
        if counts.inside or not self._on or not self.ledger.enter():
            return None
        self.ledger.leave()
        counts.inside = True
        return counts

    def ran(self, counts: Counts, start: int, end: int) -> None:
        """A call is over when its work is queued: what a tiny operation takes, any other takes to be called."""
        try:
            counts.add(start, end, min(end - start, TINY_NS))
            if counts.count < counts.stride:
                return
            line = self.ledger.lines.here(2)
            if line < 0:
                counts.forget()
                return
            if start - counts.since > TOGETHER_NS:
                self.write()
            counts.belong(line, end)
        except Exception as error:
            failed(self.ledger, API, error)

    def write(self) -> None:
        """Write down what was counted on this thread."""
        self._thread.write(self.ledger, API)
        self._spans += 1
        if self._spans == MOST_SPANS:
            self._on = False
            self.ledger.note(f"{API} were counted until there were enough, and not to the end.")

    def stop(self) -> None:
        self.write()
        self._on = False


class _Function(StandIn):
    """In the place of a function of `jnp`."""

    def __init__(self, original: Any, operations: _Operations) -> None:
        super().__init__(original)
        self._call = operations.call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._original, args, kwargs)
