"""Functions that `jax.jit` makes: a stand-in for each, because JAX shows nothing of their calls.

From its second call on a jitted function runs in C++ from end to end: what it is called with, and has to upload for
that, only somebody in front of it can see. A call ends when its work is queued, so its time is that of the dispatch,
not of the device. Uploads happen inside it and cannot be timed: theirs is what a copy of so many bytes takes.
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

from forebay.doctor.capture.hooks.jax.arrays import data_in, first_placed, has_data, incoming, is_data, within_call
from forebay.doctor.capture.hooks.jax.compilation import Compiles, Spans
from forebay.doctor.capture.hooks.jax.signatures import Parameters, Signature, reason_for, signature_of, text_of
from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["Function", "is_traced", "watch_functions"]

_ARGUMENTS = "arguments of jitted functions"

_context: Any = getattr(core, "trace_ctx", None)  # versions before 0.4.36 have none


_SURE = 8  # calls without data of NumPy's in a tree, after which that tree is looked into now and then only:
_NOW_AND_THEN = 32  # to look at the parameters of a large model takes half as long as the call


class Function:
    """One jitted function."""

    def __init__(self, original: Any) -> None:
        self.name = str(getattr(original, "__name__", original))
        self.detail = {"function": self.name}
        self.device: str | None = None  # where it runs
        self._original = original
        self._parameters = Parameters(original)
        self._compiled_for: Signature | None = None  # what it was called with when it was compiled last
        self._without_data = 0  # calls in a row, as far as trees go

    def may_hold_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call is worth looking at more closely: asked at every call."""
        self._without_data = calls = self._without_data + 1
        if calls <= _SURE or calls % _NOW_AND_THEN == 0 or has_data(args):
            return True
        return bool(kwargs) and has_data(kwargs.values())

    def data_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[Any]]:
        """The data of NumPy's in each argument that holds any, by the argument's name."""
        found: dict[str, list[Any]] = {}
        into_trees = self._looks_into_trees
        for name, (value, static) in self._parameters.named(args, kwargs).items():
            if is_data(value) and not static:
                found[name] = [value]
            elif into_trees and not static and has_data(jax.tree_util.tree_leaves(value)):
                found[name] = data_in(value)
                self._without_data = 0
        return found

    @property
    def _looks_into_trees(self) -> bool:
        return self._without_data <= _SURE or self._without_data % _NOW_AND_THEN == 0

    def was_compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
        """Details of a compilation that this call brought about."""
        self.device = first_placed(result)
        signature = signature_of(self._parameters.named(args, kwargs))
        reason = reason_for(self._compiled_for, signature)
        self._compiled_for = signature
        constants = self._constants_nbytes(args, kwargs)
        return (
            {**self.detail, "signature": text_of(signature)}
            | ({"reason": reason} if reason else {})
            | ({"constants_nbytes": constants} if constants else {})
        )

    def _constants_nbytes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Bytes of arrays that were compiled in. The trace is the one that was just made, which JAX remembers."""
        if jax.config.jax_disable_jit or not core.trace_state_clean():
            return 0  # here it would be made anew, for us alone
        with suppress(Exception):
            return sum(int(constant.nbytes) for constant in self._original.trace(*args, **kwargs).jaxpr.consts)
        return 0


def watch_functions(patches: Patches, compiles: Compiles) -> None:
    jit, pmap = (_Calls(patches, compiles, api) for api in ("jax.jit", "jax.pmap"))
    _watch_earlier(patches, jit)
    patches.replace(jax, "jit", jit.watched, api="jax.jit")
    patches.replace(jax, "pmap", pmap.watched, api="jax.pmap")


def _watch_earlier(patches: Patches, calls: "_Calls") -> None:
    """A notebook has jitted its functions before it is watched: those that it calls by name can be found."""
    main, jitted = sys.modules["__main__"], (type(jax.jit(lambda: None)), _Jitted)
    found = {name: value for name, value in vars(main).items() if type(value) in jitted}
    for name, function in found.items():
        if str(function.__module__).startswith("jax."):
            continue  # an operation that was imported by its name
        stand_in = _Jitted(function, calls)
        setattr(main, name, stand_in)
        patches.undo_with(partial(_put_back, main, name, stand_in, function), api="jax.jit")
        patches.ledger.notes.append(f"{name} was jitted before the watch began: only calls by that name are seen.")


def _put_back(owner: Any, name: str, stand_in: "_Jitted", original: Any) -> None:
    if vars(owner).get(name) is stand_in:  # not, if the user has called something else so since
        setattr(owner, name, original)


def is_traced() -> bool:
    """Whether a function is being traced on this thread: what is called then does not run now."""
    trace = None if _context is None else _context.trace
    if type(trace) is core.EvalTrace:
        return False  # mostly
    while trace is not None and not isinstance(trace, core.EvalTrace):
        if type(trace).__name__ == "DynamicJaxprTrace":
            return True
        trace = getattr(trace, "parent_trace", None)  # of grad or vmap, which run what they trace
    return False


class _Jitted(StandIn):
    """In the place of a jitted function."""

    def __init__(self, original: Any, calls: "_Calls") -> None:
        super().__init__(original)
        self._function = Function(original)
        # What passes for something else answers slowly for itself: one question has to do.
        self._call = calls.hooked(original, self._function)
        calls.made.append(ref(self))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _Calls:
    """Writes down what jitted functions do."""

    def __init__(self, patches: Patches, compiles: Compiles, api: str) -> None:
        self.ledger: Ledger = patches.ledger
        self.on = True
        self.made: list[ref[_Jitted]] = []
        self._arguments = True
        self._compiles = compiles
        self._api = api
        # Stand-ins stay in the script for good: when hooks are undone, they are told to pass calls on and no more.
        patches.undo_with(self._stop, api=api)
        patches.undo_with(self._stop_arguments, api=_ARGUMENTS)

    def _stop(self) -> None:
        self.on = False
        for jitted in (each() for each in self.made):
            if jitted is not None:
                jitted._call = jitted._original

    def _stop_arguments(self) -> None:
        self._arguments = False

    def watched(self, original: Any) -> Callable[..., Any]:
        """A `jit` whose functions are watched; called without a function it gives a decorator, as JAX's does."""

        def jit(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            made = original(*args, **kwargs)
            if not self.on:
                return made
            if hasattr(made, "lower"):
                return self._built(made, start)
            return lambda function: self._built(made(function), perf_counter_ns())

        return jit

    def _built(self, made: Any, start: int) -> Any:
        jitted = _Jitted(made, self)
        if self.ledger.enter():
            try:
                self.ledger.add(Kind.BUILD, self._api, start, detail={"what": "function", **jitted._function.detail})
            finally:
                self.ledger.leave()
        return jitted

    def hooked(self, original: Any, function: Function) -> Callable[..., Any]:
        """What calls a jitted function: often, and in a hurry."""
        ledger, compiles, api = self.ledger, self._compiles, self._api
        here, enter, leave = ledger.lines.here, ledger.enter, ledger.leave
        calling, heard = compiles.calling, compiles.heard

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.on or not enter():
                return original(*args, **kwargs)
            try:
                if is_traced():
                    return original(*args, **kwargs)
                thread = get_ident()
                calling.add(thread)
                try:
                    start = perf_counter_ns()
                    result = original(*args, **kwargs)
                    end = perf_counter_ns()
                finally:
                    calling.discard(thread)
                    compiled = heard.pop(thread, None) if heard else None
                # First, for it may end the watch: of two lines that come once a step, this one is the step.
                ledger.write(Kind.RUN, api, here(2), start, end, 0, function.detail)
                if compiled or (self._arguments and function.may_hold_data(args, kwargs)):
                    self._look_into(function, compiled, start, end, result, args, kwargs)
                return result
            finally:
                leave()

        return call

    def _look_into(
        self, function: Function, compiled: Spans | None, start: int, end: int, result: Any, args: Any, kwargs: Any
    ) -> None:
        with suppress(Exception):  # a call is worth more than what is said of it
            if compiled:
                self._add_compile(compiled, function.was_compiled(args, kwargs, result))
            if self._arguments:
                self._add_uploads(function, function.data_given(args, kwargs), start, end)

    def _add_compile(self, spans: Spans, detail: dict[str, Any]) -> None:
        start, end = min(start for start, _ in spans), max(end for _, end in spans)
        self.ledger.add(Kind.COMPILE, self._api, start, end=end, detail=detail)

    def _add_uploads(self, function: Function, given: dict[str, list[Any]], start: int, end: int) -> None:
        """One for each argument, one after the other."""
        for name, data in given.items():
            nbytes, detail = incoming(data, function.device)
            until = within_call(start, end, nbytes)
            api = f"{self._api}: {function.name}({name})"
            self.ledger.add(Kind.UPLOAD, api, start, end=until, nbytes=nbytes, detail=detail)
            start = until
