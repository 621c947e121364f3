"""Traces and compilations, from the monitoring events of JAX."""

import threading
from contextlib import suppress
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from jax import monitoring
from jax._src import monitoring as listeners

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["CompileListener", "Spans"]

_API = "jax.jit"  # operations of jnp are jitted functions too
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_STAGES = frozenset({_TRACED, _LOWERED, _COMPILED})

_unregister: Any = getattr(
    listeners,
    "unregister_event_duration_listener",
    getattr(listeners, "_unregister_event_duration_listener_by_callback", None),  # its name before 0.7
)


Spans = list[tuple[int, int]]  # start and end, in nanoseconds, of each trace or compilation


class _CompileThread(threading.local):
    previous = "", 0  # name of the function that was traced or lowered last, and nanoseconds so far


class CompileListener:
    """Receives every compilation. Those inside a hooked call go to that call, all others to the ledger."""

    def __init__(self, patches: Patches) -> None:
        self._ledger: Ledger = patches.ledger
        self._thread = _CompileThread()
        # The hooks of calls write to these directly, because they are a hot path.
        self.calling: set[int] = set()  # threads inside a hooked call
        self.spans: dict[int, Spans] = {}  # thread -> compilations of its call; mostly empty
        monitoring.register_event_duration_secs_listener(self._on_event)
        patches.add_undo(self._stop, api="compilations of JAX")

    def _on_event(self, event: str, seconds: float, **kwargs: Any) -> None:
        if event not in _STAGES or not self._ledger.is_on:
            return
        end, length = perf_counter_ns(), int(seconds * 1e9)
        thread = get_ident()
        if thread in self.calling:
            self.spans.setdefault(thread, []).append((end - length, end))
            return
        self._record(event, end, length, str(kwargs.get("fun_name", "")))

    def _record(self, event: str, end: int, length: int, name: str) -> None:
        """Record one event for a function that is traced, lowered and compiled. Only the last stage always occurs."""
        name = name.removeprefix("jit(").removesuffix(")")
        previous, before = self._thread.previous
        length += before if previous == name else 0
        if event != _COMPILED:
            self._thread.previous = name, length
            return
        self._thread.previous = "", 0
        self._ledger.add(EventKind.COMPILE, _API, end - length, end=end, detail={"function": name} if name else None)

    def _stop(self) -> None:
        """Remove only our listener. The public function would remove those of the user too."""
        with suppress(Exception):  # in other versions it stays registered and does nothing when the ledger is off
            if self._on_event in listeners.get_event_duration_listeners():
                _unregister(self._on_event)
