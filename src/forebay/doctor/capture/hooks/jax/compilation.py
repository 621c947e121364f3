"""A listener for the monitoring events with which JAX reports traces and compilations."""

import threading
from contextlib import suppress
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from jax import monitoring
from jax._src import monitoring as private_monitoring

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["CompileListener", "Spans"]

_API = "jax.jit"  # API name of the events; operations of jnp have it too, because they are jitted functions
_TRACE_EVENT = "/jax/core/compile/jaxpr_trace_duration"
_LOWER_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
_COMPILE_EVENTS = frozenset({_TRACE_EVENT, _LOWER_EVENT, _COMPILE_EVENT})

_unregister: Any = getattr(
    private_monitoring,
    "unregister_event_duration_listener",
    getattr(private_monitoring, "_unregister_event_duration_listener_by_callback", None),  # the name before JAX 0.7
)


Spans = list[tuple[int, int]]  # start and end, in nanoseconds, of each trace, lowering or compilation


class _ThreadState(threading.local):
    """The function that a thread has traced or lowered, but not compiled yet."""

    unfinished = "", 0  # name of the function, and nanoseconds of its stages so far; empty and 0 if there is none


class CompileListener:
    """Receives every trace, lowering and compilation.

    Inside a hooked call, the listener only stores the times, and the hook of the call writes the event. Elsewhere, the
    listener itself writes an event for each compilation.
    """

    def __init__(self, patches: Patches) -> None:
        self._ledger: Ledger = patches.ledger
        self._thread_state = _ThreadState()
        # The hooks of jitted functions are a hot path, so they change the next two attributes directly.
        self.threads_in_call: set[int] = set()  # ids of threads inside a hooked call
        self.spans_by_thread: dict[int, Spans] = {}  # thread id -> spans in its hooked call
        monitoring.register_event_duration_secs_listener(self._on_event)
        patches.add_undo(self._stop, api="compilations of JAX")

    def _on_event(self, event: str, seconds: float, **kwargs: Any) -> None:
        if event not in _COMPILE_EVENTS or not self._ledger.is_on:
            return
        end, duration_ns = perf_counter_ns(), int(seconds * 1e9)
        thread = get_ident()
        if thread in self.threads_in_call:
            self.spans_by_thread.setdefault(thread, []).append((end - duration_ns, end))
            return
        self._record(event, end, duration_ns, str(kwargs.get("fun_name", "")))

    def _record(self, event: str, end: int, duration_ns: int, name: str) -> None:
        """Add up the times of stages, and write one event for each compilation.

        The stages of a function are trace, lowering and compilation. The event covers its consecutive stages on this
        thread, but not a trace or a lowering after which a stage of another function follows.
        """
        name = name.removeprefix("jit(").removesuffix(")")
        unfinished_name, unfinished_ns = self._thread_state.unfinished
        duration_ns += unfinished_ns if unfinished_name == name else 0
        if event != _COMPILE_EVENT:
            self._thread_state.unfinished = name, duration_ns
            return
        self._thread_state.unfinished = "", 0
        detail = {"function": name} if name else None
        self._ledger.add(EventKind.COMPILE, _API, end - duration_ns, end=end, detail=detail)

    def _stop(self) -> None:
        """Remove the listener. The public `clear_event_listeners` would also remove the user's listeners."""
        with suppress(Exception):  # a listener that JAX cannot remove does nothing once the ledger is off
            if self._on_event in private_monitoring.get_event_duration_listeners():
                _unregister(self._on_event)
