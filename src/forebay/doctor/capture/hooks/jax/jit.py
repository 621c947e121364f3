"""Functions made by `jax.jit`: each is replaced by a proxy, because JAX reports nothing about their calls.

From its second call on, a jitted function runs entirely in C++. Only a proxy sees its arguments and what they upload.
A call returns when its work is queued, so its event has the time of the dispatch, not of the device. Uploads inside the
call cannot be timed; their time is estimated from the number of bytes.
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

_ARGUMENTS = "arguments of jitted functions"

_context: Any = getattr(core, "trace_ctx", None)  # None before version 0.4.36

# Examining the parameters of a large model takes half as long as the call. After this many calls without NumPy data in
# the trees, only one call in _SAMPLED_CALLS is examined.
_EXAMINED_CALLS = 8
_SAMPLED_CALLS = 32


class JittedFunction:
    """One jitted function and what is known of its calls."""

    def __init__(self, original: Any) -> None:
        self.name = str(getattr(original, "__name__", original))
        self.detail = {"function": self.name}
        self.device: str | None = None  # where it runs
        self._original = original
        self._parameters = Parameters(original)
        self._compiled_for: Signature | None = None  # arguments of the last compilation
        self._calls_without_data = 0  # consecutive calls without NumPy data in trees

    def may_hold_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether to examine the arguments of a call. Hot path."""
        self._calls_without_data = calls = self._calls_without_data + 1
        if calls <= _EXAMINED_CALLS or calls % _SAMPLED_CALLS == 0 or has_host_array(args):
            return True
        return bool(kwargs) and has_host_array(kwargs.values())

    def host_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the NumPy data of each argument, by the name of the argument."""
        found: dict[str, list[Any]] = {}
        examines_trees = self._examines_trees
        for name, (value, is_static) in self._parameters.bind(args, kwargs).items():
            if is_host_array(value) and not is_static:
                found[name] = [value]
            elif examines_trees and not is_static and has_host_array(jax.tree_util.tree_leaves(value)):
                found[name] = host_arrays_in(value)
                self._calls_without_data = 0
        return found

    @property
    def _examines_trees(self) -> bool:
        return self._calls_without_data <= _EXAMINED_CALLS or self._calls_without_data % _SAMPLED_CALLS == 0

    def describe_compilation(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
        """Describe the compilation that a call has caused."""
        self.device = first_device(result)
        signature = signature_of(self._parameters.bind(args, kwargs))
        reason = recompile_reason(self._compiled_for, signature)
        self._compiled_for = signature
        constants_nbytes = self._constants_nbytes(args, kwargs)
        return (
            {**self.detail, "signature": format_signature(signature)}
            | ({"reason": reason} if reason else {})
            | ({"constants_nbytes": constants_nbytes} if constants_nbytes else {})
        )

    def _constants_nbytes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return the bytes of arrays that were compiled in, from the trace that JAX has just cached."""
        if jax.config.jax_disable_jit or not core.trace_state_clean():
            return 0  # JAX has no cached trace, and would trace again only for us
        with suppress(Exception):
            return sum(int(constant.nbytes) for constant in self._original.trace(*args, **kwargs).jaxpr.consts)
        return 0


def hook_functions(patches: Patches, listener: CompileListener) -> None:
    jit, pmap = (_JitHooks(patches, listener, api) for api in ("jax.jit", "jax.pmap"))
    _hook_existing_functions(patches, jit)
    patches.replace(jax, "jit", jit.hook_jit, api="jax.jit")
    patches.replace(jax, "pmap", pmap.hook_jit, api="jax.pmap")


def _hook_existing_functions(patches: Patches, hooks: "_JitHooks") -> None:
    """Replace functions of `__main__` that were jitted before the session, as in a notebook."""
    main, jitted = sys.modules["__main__"], (type(jax.jit(lambda: None)), _JitProxy)
    found = {name: value for name, value in vars(main).items() if type(value) in jitted}
    for name, function in found.items():
        if str(function.__module__).startswith("jax."):
            continue  # an operation of JAX that the script has imported
        proxy = _JitProxy(function, hooks)
        setattr(main, name, proxy)
        patches.add_undo(partial(_restore, main, name, proxy, function), api="jax.jit")
        patches.ledger.notes.append(
            f"{name} was jitted before profiling started: only calls through this name are recorded."
        )


def _restore(owner: Any, name: str, proxy: "_JitProxy", original: Any) -> None:
    if vars(owner).get(name) is proxy:  # the user may have assigned the name again
        setattr(owner, name, original)


def is_tracing() -> bool:
    """Whether this thread traces a function, so that calls do not execute now."""
    trace = None if _context is None else _context.trace
    if type(trace) is core.EvalTrace:
        return False  # the usual case
    while trace is not None and not isinstance(trace, core.EvalTrace):
        if type(trace).__name__ == "DynamicJaxprTrace":
            return True
        trace = getattr(trace, "parent_trace", None)  # traces of grad and vmap execute what they trace
    return False


class _JitProxy(FunctionProxy):
    """Replaces a jitted function."""

    def __init__(self, original: Any, hooks: "_JitHooks") -> None:
        super().__init__(original)
        self._function = JittedFunction(original)
        # Attribute lookups on a proxy are slow, so the call needs only this one.
        self._call = hooks.make_call(original, self._function)
        hooks.proxies.append(ref(self))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _JitHooks:
    """Records creations, calls, compilations and uploads of jitted functions."""

    def __init__(self, patches: Patches, listener: CompileListener, api: str) -> None:
        self.ledger: Ledger = patches.ledger
        self.is_on = True
        self.proxies: list[ref[_JitProxy]] = []
        self._records_arguments = True
        self._listener = listener
        self._api = api
        # Proxies stay in the script after the session. When the hooks are removed, they only forward calls.
        patches.add_undo(self._stop, api=api)
        patches.add_undo(self._stop_arguments, api=_ARGUMENTS)

    def _stop(self) -> None:
        self.is_on = False
        for proxy in (reference() for reference in self.proxies):
            if proxy is not None:
                proxy._call = proxy._original

    def _stop_arguments(self) -> None:
        self._records_arguments = False

    def hook_jit(self, original: Any) -> Callable[..., Any]:
        """Make a `jit` that returns proxies. Without a function it returns a decorator, as JAX does."""

        def jit(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            jitted = original(*args, **kwargs)
            if not self.is_on:
                return jitted
            if hasattr(jitted, "lower"):
                return self._make_proxy(jitted, start)
            return lambda function: self._make_proxy(jitted(function), perf_counter_ns())

        return jit

    def _make_proxy(self, jitted: Any, start: int) -> Any:
        proxy = _JitProxy(jitted, self)
        if self.ledger.begin():
            try:
                detail = {"what": "function", **proxy._function.detail}
                self.ledger.add(EventKind.BUILD, self._api, start, detail=detail)
            finally:
                self.ledger.end()
        return proxy

    def make_call(self, original: Any, function: JittedFunction) -> Callable[..., Any]:
        """Make the function that calls a jitted function. Hot path."""
        ledger, listener, api = self.ledger, self._listener, self._api
        current_line, begin_hook, end_hook = ledger.lines.current_line, ledger.begin, ledger.end
        calling, spans = listener.calling, listener.spans

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on or not begin_hook():
                return original(*args, **kwargs)
            try:
                if is_tracing():
                    return original(*args, **kwargs)
                thread = get_ident()
                calling.add(thread)
                try:
                    start = perf_counter_ns()
                    result = original(*args, **kwargs)
                    end = perf_counter_ns()
                finally:
                    calling.discard(thread)
                    compiled = spans.pop(thread, None) if spans else None
                # Written first, because it may end profiling: of two sites that occur once a step, this is the step.
                ledger.write(EventKind.RUN, api, current_line(2), start, end, detail=function.detail)
                if compiled or (self._records_arguments and function.may_hold_data(args, kwargs)):
                    self._examine(function, compiled, HookedCall(start, end, result, args, kwargs))
                return result
            finally:
                end_hook()

        return call

    def _examine(self, function: JittedFunction, compiled: Spans | None, call: HookedCall) -> None:
        with suppress(Exception):  # the call matters more than its description
            if compiled:
                detail = function.describe_compilation(call.args, call.kwargs, call.result)
                self._record_compilation(compiled, detail)
            if self._records_arguments:
                self._record_uploads(function, function.host_arguments(call.args, call.kwargs), call.start, call.end)

    def _record_compilation(self, spans: Spans, detail: dict[str, Any]) -> None:
        start, end = min(start for start, _ in spans), max(end for _, end in spans)
        self.ledger.add(EventKind.COMPILE, self._api, start, end=end, detail=detail)

    def _record_uploads(self, function: JittedFunction, given: dict[str, list[Any]], start: int, end: int) -> None:
        """Record one upload for each argument, one after the other."""
        for name, data in given.items():
            nbytes, detail = describe_host_data(data, function.device)
            upload_end = estimate_upload_end(start, end, nbytes)
            api = f"{self._api}: {function.name}({name})"
            self.ledger.add(EventKind.UPLOAD, api, start, end=upload_end, nbytes=nbytes, detail=detail)
            start = upload_end
