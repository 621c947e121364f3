"""The compiler behind `torch.compile`: what it compiles, why again, and each run of what came of it.

Nothing here is seen by the compiler: a compiled function is the one that it would be, with as many graphs.
"""

import weakref
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from types import CodeType
from typing import Any

from torch._dynamo import convert_frame, eval_frame, trace_rules, utils
from torch._dynamo.callback import callback_handler

from forebay.doctor.capture.hooks.torch.compile import COMPILE, name_of
from forebay.doctor.capture.hooks.torch.watcher import Hook, Watcher, is_torchs
from forebay.doctor.model.events import Kind

__all__ = ["watch_dynamo"]

RUN = "compiled function"
LONGEST_SIGNATURE = 200
_REASONS = {"dtype mismatch": "dtype", "size mismatch": "shape", "rank mismatch": "shape", "stride mismatch": "shape"}
_LATER = {"LAZY_BACKWARD": "backward", "CUDAGRAPH_RECORDING": "CUDA graph"}  # compiled when first needed


def watch_dynamo(watcher: Watcher) -> None:
    # Between the pieces of a function that is compiled in several, our frames run, and are not to be compiled. This is
    # not undone: whoever has kept a stand-in of ours still calls it.
    trace_rules.add("forebay.doctor")
    watcher.replace(convert_frame, "_compile", COMPILE, _Compile)
    watcher.replace(eval_frame.OptimizeContext, "__call__", RUN, _Wrap)
    later = _Later(watcher)
    callback_handler.register_start_callback(later.begin)
    callback_handler.register_end_callback(later.end)
    watcher.patches.undo_with(later.remove, api=COMPILE)


class _Compile(Hook):
    """One compilation of one function, whether anything came of it or not."""

    def __call__(self, code: CodeType, *args: Any, **kwargs: Any) -> Any:
        ledger = self._watcher.ledger
        if not self.on or not ledger.on:
            return self._original(code, *args, **kwargs)
        start = perf_counter_ns()
        outermost = ledger.enter()  # the compiler converts and reads for itself
        try:
            return self._original(code, *args, **kwargs)
        finally:
            if outermost:
                ledger.leave()
            self._write(start, code)

    def _write(self, start: int, code: CodeType) -> None:
        with self._watcher.quietly(COMPILE):
            running = self._watcher.thread.running if is_torchs(code.co_filename) else ""
            detail = {"function": running or code.co_qualname, **_why(code)}  # a layer of torch's is part of something
            self._watcher.ledger.add(Kind.COMPILE, COMPILE, start, detail=detail)


def _why(code: CodeType) -> dict[str, str]:
    """As the compiler itself says of what it compiled last. Values that it was compiled for are not repeated."""
    last = utils.get_compilation_metrics()[-1:]
    if not last or last[0].co_name != code.co_name:
        return {}
    said = getattr(last[0], "recompile_reason", "")  # older versions do not tell
    if not said:
        return {"reason": "first"} if said is None else {}
    reason = next((reason for words, reason in _REASONS.items() if words in said), "value")
    if reason == "value":
        return {"reason": reason}
    return {"reason": reason, "signature": said.partition(": ")[2][:LONGEST_SIGNATURE]}


class _Wrap(Hook):
    """A function is wrapped: its runs are seen from now on, by way of what a wrapper enters and leaves anyway."""

    def __init__(self, original: Any, place: str, watcher: Watcher) -> None:
        super().__init__(original, place, watcher)
        self._runs: list[tuple[weakref.ref[Any], _Run]] = []

    def __call__(self, context: Any, function: Any) -> Any:
        if self.on and not any(known() is context for known, _ in self._runs):
            run = _Run(self._watcher, name_of(function))
            context.enter_exit_hooks.append(run)
            self._runs.append((weakref.ref(context), run))
        return self._original(context, function)

    def retire(self) -> None:
        super().retire()
        for known, run in self._runs:
            context = known()
            if context is not None and run in context.enter_exit_hooks:
                context.enter_exit_hooks.remove(run)


class _Run:
    """Entered with each call of a compiled function."""

    def __init__(self, watcher: Watcher, name: str) -> None:
        self._watcher, self._name = watcher, name

    def __call__(self) -> Any:
        thread = self._watcher.thread
        outer, thread.running = thread.running, self._name
        return partial(self._ran, perf_counter_ns(), outer)

    def __reduce__(self) -> Any:
        """A compiled module may be copied or pickled, its context with it: then this enters and leaves nothing."""
        return partial, (partial, int)

    def _ran(self, start: int, outer: str) -> None:
        self._watcher.thread.running = outer
        with self._watcher.quietly(RUN):
            if self._watcher.ledger.on:
                self._watcher.ledger.add(Kind.RUN, RUN, start, detail={"function": self._name})


class _Later:
    """What is compiled only when it is first needed: a backward pass, a CUDA graph."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._start = 0

    def begin(self, what: Any = None) -> None:
        self._start = perf_counter_ns()

    def end(self, what: Any = None) -> None:
        name = _LATER.get(getattr(getattr(what, "callback_trigger", None), "name", ""))
        if name is None or not self._watcher.ledger.on:
            return
        with self._watcher.quietly(COMPILE):
            detail = {"function": name, "reason": "first"}
            self._watcher.ledger.add(Kind.COMPILE, COMPILE, self._start, detail=detail)

    def remove(self) -> None:
        with suppress(ValueError):  # `torch._dynamo.reset()` has done it
            callback_handler.remove_start_callback(self.begin)
        with suppress(ValueError):
            callback_handler.remove_end_callback(self.end)
