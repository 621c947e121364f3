"""Hooks for `jax.jit` and `jax.pmap`, and proxies that record the calls of jitted functions.

The hooked `jax.jit` and `jax.pmap` return proxies of jitted functions. A proxy is necessary because a jitted function
runs entirely in C++ from its second call on. A call returns when its work is queued, so its event does not include the
time of the device. Uploads inside a call cannot be timed; their duration is estimated from the number of bytes.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any
from weakref import ref

import jax
from jax._src import core

from forebay.doctor.capture.hooks.calls import HookedCall
from forebay.doctor.capture.hooks.jax.arrays import (
    describe_host_data,
    estimate_upload_end,
    first_device,
    has_host_array,
    host_arrays_in,
    is_host_array,
)
from forebay.doctor.capture.hooks.jax.compilation import CompileListener, Spans
from forebay.doctor.capture.hooks.jax.signatures import (
    Parameters,
    Signature,
    format_signature,
    recompile_reason,
    signature_of,
)
from forebay.doctor.capture.hooks.proxy import FunctionProxy
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["JittedFunction", "hook_functions", "is_tracing"]

# While steps are timed, the session keeps only the hooks of the API that marks steps. If that API is `jax.jit`, the
# hooks still record calls, but not arguments, because arguments have this API name of their own.
_ARGUMENTS_API = "arguments of jitted functions"

_trace_context: Any = getattr(core, "trace_ctx", None)  # None before JAX 0.4.36

# Some arguments are trees, such as the parameters of a model. Searching a large tree for NumPy data takes half as long
# as the call. Therefore the hook searches fewer calls while it finds no such data in trees.
_FULLY_EXAMINED_CALLS = 8  # the hook searches the trees of this many calls, from the start or since it found NumPy data
_EXAMINED_INTERVAL = 32  # after these calls, the hook searches the trees of every 32nd call


class JittedFunction:
    """Facts about one jitted function and its calls."""

    def __init__(self, original: Any) -> None:
        self.name = str(getattr(original, "__name__", original))
        self.detail = {"function": self.name}
        self.device: str | None = None  # the device on which the function ran after its last compilation
        self._original = original
        self._parameters = Parameters(original)
        self._last_signature: Signature | None = None  # of the call that caused the last compilation
        self._calls_without_data = 0  # calls since the last one with NumPy data in a tree

    def should_examine(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Count a call, and return whether to examine its arguments. Hot path."""
        self._calls_without_data = calls = self._calls_without_data + 1
        if calls <= _FULLY_EXAMINED_CALLS or calls % _EXAMINED_INTERVAL == 0 or has_host_array(args):
            return True
        return bool(kwargs) and has_host_array(kwargs.values())

    def host_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[Any]]:
        """Return a dict: argument name -> NumPy arrays in the argument.

        Arguments without NumPy arrays are omitted. Trees are searched only if `_should_examine_trees`.
        """
        arrays_by_argument: dict[str, list[Any]] = {}
        should_examine_trees = self._should_examine_trees
        for name, (value, is_static) in self._parameters.bind(args, kwargs).items():
            if is_host_array(value) and not is_static:
                arrays_by_argument[name] = [value]
            elif should_examine_trees and not is_static and has_host_array(jax.tree_util.tree_leaves(value)):
                arrays_by_argument[name] = host_arrays_in(value)
                self._calls_without_data = 0
        return arrays_by_argument

    @property
    def _should_examine_trees(self) -> bool:
        return self._calls_without_data <= _FULLY_EXAMINED_CALLS or self._calls_without_data % _EXAMINED_INTERVAL == 0

    def describe_compilation(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
        """Return the details of the compilation that a call caused; store its device and signature."""
        self.device = first_device(result)
        signature = signature_of(self._parameters.bind(args, kwargs))
        reason = recompile_reason(self._last_signature, signature)
        self._last_signature = signature
        constants_nbytes = self._constants_nbytes(args, kwargs)
        return (
            {**self.detail, "signature": format_signature(signature)}
            | ({"reason": reason} if reason else {})
            | ({"constants_nbytes": constants_nbytes} if constants_nbytes else {})
        )

    def _constants_nbytes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return the bytes of arrays that JAX has embedded in the compiled code as constants.

        JAX has just cached the trace of this call, so `trace` does not run the user's function again.
        """
        if jax.config.jax_disable_jit or not core.trace_state_clean():
            return 0  # no trace is cached
        with suppress(Exception):
            return sum(int(constant.nbytes) for constant in self._original.trace(*args, **kwargs).jaxpr.consts)
        return 0


def hook_functions(patches: Patches, listener: CompileListener) -> None:
    jit_hooks, pmap_hooks = (_JitHooks(patches, listener, api) for api in ("jax.jit", "jax.pmap"))
    _hook_existing_functions(patches, jit_hooks)
    patches.replace(jax, "jit", jit_hooks.hook_jit, api="jax.jit")
    patches.replace(jax, "pmap", pmap_hooks.hook_jit, api="jax.pmap")


def _hook_existing_functions(patches: Patches, hooks: "_JitHooks") -> None:
    """Replace the functions in `__main__` that were jitted before the session, as in a notebook."""
    main = sys.modules["__main__"]
    jitted_types = type(jax.jit(lambda: None)), _JitProxy  # an earlier session may have left proxies
    jitted_functions = {name: value for name, value in vars(main).items() if type(value) in jitted_types}
    for name, function in jitted_functions.items():
        if str(function.__module__).startswith("jax."):
            continue  # an operation of JAX that the script has imported
        proxy = _JitProxy(function, hooks)
        setattr(main, name, proxy)
        patches.add_undo(partial(_restore, main, name, proxy, function), api="jax.jit")
        patches.ledger.notes.append(
            f"{name} was jitted before profiling started: only calls through this name are recorded."
        )


def _restore(owner: Any, name: str, proxy: "_JitProxy", original: Any) -> None:
    if vars(owner).get(name) is proxy:  # not if the user has assigned another value
        setattr(owner, name, original)


def is_tracing() -> bool:
    """Whether this thread traces a function, so that operations do not run now."""
    trace = None if _trace_context is None else _trace_context.trace
    if type(trace) is core.EvalTrace:
        return False  # the usual case
    while trace is not None and not isinstance(trace, core.EvalTrace):
        if type(trace).__name__ == "DynamicJaxprTrace":
            return True
        # Inside `jax.grad` and `jax.vmap`, the parent trace decides whether operations run.
        trace = getattr(trace, "parent_trace", None)
    return False


class _JitProxy(FunctionProxy):
    """Replaces a jitted function and records its calls."""

    def __init__(self, original: Any, hooks: "_JitHooks") -> None:
        super().__init__(original)
        self._function = JittedFunction(original)
        # Attribute lookups on a proxy are slow, so `__call__` looks up only `_call`.
        self._call = hooks.make_call(original, self._function)
        hooks.proxies.append(ref(self))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _JitHooks:
    """Records creations, calls, compilations and uploads of functions that `jax.jit` or `jax.pmap` made."""

    def __init__(self, patches: Patches, listener: CompileListener, api: str) -> None:
        self.ledger: Ledger = patches.ledger
        self.is_on = True
        self.proxies: list[ref[_JitProxy]] = []
        self._records_arguments = True
        self._listener = listener
        self._api = api
        # The script keeps its proxies after the session. `_stop` makes them forward calls without recording.
        patches.add_undo(self._stop, api=api)
        patches.add_undo(self._stop_recording_arguments, api=_ARGUMENTS_API)

    def _stop(self) -> None:
        self.is_on = False
        for proxy in (reference() for reference in self.proxies):
            if proxy is not None:
                proxy._call = proxy._original

    def _stop_recording_arguments(self) -> None:
        self._records_arguments = False

    def hook_jit(self, original: Any) -> Callable[..., Any]:
        """Return a replacement for `jax.jit` or `jax.pmap` that returns proxies.

        Called without a function, the replacement returns a decorator, as JAX does.
        """

        def jit(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            jitted = original(*args, **kwargs)
            if not self.is_on:
                return jitted
            if hasattr(jitted, "lower"):  # a jitted function has this method; a decorator does not
                return self._make_proxy(jitted, start)
            return lambda function: self._make_proxy(jitted(function), perf_counter_ns())

        return jit

    def _make_proxy(self, jitted: Any, start: int) -> Any:
        """Return a proxy of a jitted function, and record its creation since `start` (ns)."""
        proxy = _JitProxy(jitted, self)
        if self.ledger.begin():
            try:
                detail = {"what": "function", **proxy._function.detail}
                self.ledger.add(EventKind.BUILD, self._api, start, detail=detail)
            finally:
                self.ledger.end()
        return proxy

    def make_call(self, original: Any, function: JittedFunction) -> Callable[..., Any]:
        """Return a function that calls a jitted function and records the call. Hot path."""
        ledger, listener, api = self.ledger, self._listener, self._api
        current_line, begin_hook, end_hook = ledger.lines.current_line, ledger.begin, ledger.end
        threads_in_call, spans_by_thread = listener.threads_in_call, listener.spans_by_thread

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on or not begin_hook():
                return original(*args, **kwargs)
            try:
                if is_tracing():
                    return original(*args, **kwargs)
                thread = get_ident()
                threads_in_call.add(thread)
                try:
                    start = perf_counter_ns()
                    result = original(*args, **kwargs)
                    end = perf_counter_ns()
                finally:
                    threads_in_call.discard(thread)
                    compile_spans = spans_by_thread.pop(thread, None) if spans_by_thread else None
                # Write the RUN event before the UPLOAD events of the call. Both may recur once per step, and the step
                # detector must choose the RUN events as the ends of steps.
                ledger.write((EventKind.RUN, api, current_line(2)), start, end, detail=function.detail)
                if compile_spans or (self._records_arguments and function.should_examine(args, kwargs)):
                    self._examine(function, compile_spans, HookedCall(start, end, result, args, kwargs))
                return result
            finally:
                end_hook()

        return call

    def _examine(self, function: JittedFunction, compile_spans: Spans | None, call: HookedCall) -> None:
        """Record the compilation and the uploads of a call."""
        with suppress(Exception):  # an argument that cannot be described must not fail the script
            if compile_spans:
                detail = function.describe_compilation(call.args, call.kwargs, call.result)
                self._record_compilation(compile_spans, detail)
            if self._records_arguments:
                self._record_uploads(function, function.host_arguments(call.args, call.kwargs), call.start, call.end)

    def _record_compilation(self, spans: Spans, detail: dict[str, Any]) -> None:
        start, end = min(start for start, _ in spans), max(end for _, end in spans)
        self.ledger.add(EventKind.COMPILE, self._api, start, end=end, detail=detail)

    def _record_uploads(
        self, function: JittedFunction, arrays_by_argument: dict[str, list[Any]], start: int, end: int
    ) -> None:
        """Record one upload event for each argument. Each event starts where the previous one ends."""
        for name, arrays in arrays_by_argument.items():
            nbytes, detail = describe_host_data(arrays, function.device)
            upload_end = estimate_upload_end(start, end, nbytes)
            api = f"{self._api}: {function.name}({name})"
            self.ledger.add(EventKind.UPLOAD, api, start, end=upload_end, nbytes=nbytes, detail=detail)
            start = upload_end
