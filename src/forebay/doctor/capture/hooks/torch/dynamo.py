"""Hooks for the compiler behind `torch.compile`: compilations, their reasons, and runs of compiled functions.

The hooks do not change what Dynamo compiles: the number of graphs stays the same.
"""

import re
import weakref
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from types import CodeType
from typing import Any

from torch._dynamo import convert_frame, eval_frame, output_graph, trace_rules, utils
from torch._dynamo.callback import callback_handler

from forebay.doctor.capture.hooks.torch.call_hooks import TorchHook, TorchHooks, is_torch_file
from forebay.doctor.capture.hooks.torch.compile import COMPILE, name_of_function
from forebay.doctor.model.events import EventKind

__all__ = ["hook_dynamo"]

RUN = "compiled function"  # API name in events
MAX_SIGNATURE_LENGTH = 200  # characters
MAX_REASON_LENGTH = 80  # characters, of a graph break
_RESUMED = re.compile(r"^torch_dynamo_resume_in_.*_at_(\d{1,7})$")  # name of a function after a graph break
# Phrase in the text of the failed guard -> reason in events. Any other guard counts as "value".
_REASONS = {"dtype mismatch": "dtype", "size mismatch": "shape", "rank mismatch": "shape", "stride mismatch": "shape"}
# Trigger that Dynamo passes to its callbacks -> function name in events.
_LAZY_TRIGGERS = {"LAZY_BACKWARD": "backward", "CUDAGRAPH_RECORDING": "CUDA graph"}


def hook_dynamo(hooks: TorchHooks) -> None:
    # Hooks of the doctor run at the graph breaks of a compiled function, and Dynamo must not compile their frames. Keep
    # this rule after profiling: code that kept a reference to a hook still calls it.
    trace_rules.add("forebay.doctor")
    hooks.replace(convert_frame, "_compile", COMPILE, _CompileHook)
    hooks.replace(eval_frame.OptimizeContext, "__call__", RUN, _WrapHook)
    lazy = _LazyCompilations(hooks)
    callback_handler.register_start_callback(lazy.on_start)
    callback_handler.register_end_callback(lazy.on_end)
    hooks.patches.add_undo(lazy.remove, api=COMPILE)


class _CompileHook(TorchHook):
    """Records one compilation of one function, whether it succeeds or not."""

    def __call__(self, code: CodeType, *args: Any, **kwargs: Any) -> Any:
        ledger = self._hooks.ledger
        if not self.is_on or not ledger.is_on:
            return self._original(code, *args, **kwargs)
        start = perf_counter_ns()
        is_outermost = ledger.begin()  # hooks inside the compiler then record nothing
        try:
            return self._original(code, *args, **kwargs)
        finally:
            if is_outermost:
                ledger.end()
            self._record(start, code)

    def _record(self, start: int, code: CodeType) -> None:
        with self._hooks.guard(COMPILE):
            # Dynamo may compile a layer of PyTorch separately. It counts as part of the user's compiled function.
            outer = self._hooks.thread_state.compiled_name if is_torch_file(code.co_filename) else ""
            detail = {"function": outer or code.co_qualname, **_describe_reason(code), **self._describe_break(code)}
            self._hooks.ledger.add(EventKind.COMPILE, COMPILE, start, detail=detail)

    def _describe_break(self, code: CodeType) -> dict[str, Any]:
        """Return the line and the reason of the graph break after which Dynamo compiles.

        The result is empty if there is no graph break. Dynamo names the function that continues after a break by the
        function and the line of the break.
        """
        match = _RESUMED.search(code.co_name)
        if match is None:
            return {}
        number = int(match[1])
        line = self._hooks.ledger.lines.first_user_line([(code.co_filename, number, code.co_qualname)])
        return {"graph_break": line, "break_reason": _reason_of_break(code.co_filename, number)}


def _reason_of_break(file: str, number: int) -> str:
    """Return the reason of the last graph break on a line; "" if unknown.

    Return only the first line of PyTorch's text, because its other lines may contain data of the user.
    """
    for graph_break in reversed(getattr(output_graph, "graph_break_reasons", ())):
        stack = graph_break.user_stack
        if stack and (stack[-1].filename, stack[-1].lineno) == (file, number):
            return str(graph_break.reason).partition("\n")[0][:MAX_REASON_LENGTH]
    return ""


def _describe_reason(code: CodeType) -> dict[str, str]:
    """Return the reason of the last compilation, if it compiled `code`.

    The result is empty if Dynamo reports no reason. The text of a "value" guard may contain data of the user, so the
    details omit it.
    """
    last = utils.get_compilation_metrics()[-1:]
    if not last or last[0].co_name != code.co_name:
        return {}
    text = getattr(last[0], "recompile_reason", "")  # "": an older PyTorch; None: the first compilation
    if not text:
        return {"reason": "first"} if text is None else {}
    reason = next((reason for phrase, reason in _REASONS.items() if phrase in text), "value")
    if reason == "value":
        return {"reason": reason}
    return {"reason": reason, "signature": text.partition(": ")[2][:MAX_SIGNATURE_LENGTH]}


class _WrapHook(TorchHook):
    """Adds a `_RunHook` to each function that `torch.compile` wraps."""

    def __init__(self, original: Any, name: str, hooks: TorchHooks) -> None:
        super().__init__(original, name, hooks)
        self._run_hooks: list[tuple[weakref.ref[Any], _RunHook]] = []

    def __call__(self, context: Any, function: Any) -> Any:
        if self.is_on and not any(context_ref() is context for context_ref, _ in self._run_hooks):
            run_hook = _RunHook(self._hooks, name_of_function(function))
            context.enter_exit_hooks.append(run_hook)
            self._run_hooks.append((weakref.ref(context), run_hook))
        return self._original(context, function)

    def switch_off(self) -> None:
        super().switch_off()
        for context_ref, run_hook in self._run_hooks:
            context = context_ref()
            if context is not None and run_hook in context.enter_exit_hooks:
                context.enter_exit_hooks.remove(run_hook)


class _RunHook:
    """Records each call of a compiled function.

    When a call starts, Dynamo calls the hook, which returns a function. When the call ends, Dynamo calls this function.
    """

    def __init__(self, hooks: TorchHooks, name: str) -> None:
        self._hooks, self._name = hooks, name

    def __call__(self) -> Any:
        state = self._hooks.thread_state
        outer, state.compiled_name = state.compiled_name, self._name
        return partial(self._record, perf_counter_ns(), outer)

    def __reduce__(self) -> Any:
        """Give a copied or pickled compiled module a hook that does nothing."""
        return partial, (partial, int)  # a call returns `partial(int)`, which has no effect either

    def _record(self, start: int, outer: str) -> None:
        self._hooks.thread_state.compiled_name = outer
        with self._hooks.guard(RUN):
            if self._hooks.ledger.is_on:
                self._hooks.ledger.add(EventKind.RUN, RUN, start, detail={"function": self._name})


class _LazyCompilations:
    """Records what PyTorch compiles on first use: a backward pass, or a CUDA graph."""

    def __init__(self, hooks: TorchHooks) -> None:
        self._hooks = hooks
        self._start = 0

    def on_start(self, event: Any = None) -> None:
        self._start = perf_counter_ns()

    def on_end(self, event: Any = None) -> None:
        name = _LAZY_TRIGGERS.get(getattr(getattr(event, "callback_trigger", None), "name", ""))
        if name is None or not self._hooks.ledger.is_on:
            return
        with self._hooks.guard(COMPILE):
            detail = {"function": name, "reason": "first"}
            self._hooks.ledger.add(EventKind.COMPILE, COMPILE, self._start, detail=detail)

    def remove(self) -> None:
        with suppress(ValueError):  # the script called `torch._dynamo.reset()`, which removes callbacks
            callback_handler.remove_start_callback(self.on_start)
        with suppress(ValueError):
            callback_handler.remove_end_callback(self.on_end)
