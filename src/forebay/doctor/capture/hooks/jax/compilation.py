"""What JAX traces and compiles, as it tells those who listen."""

import threading
from contextlib import suppress
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from jax import monitoring
from jax._src import monitoring as listeners

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["Compiles", "Spans"]

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


Spans = list[tuple[int, int]]  # from when until when something was traced or compiled


class _Thread(threading.local):
    """What a thread is busy with."""

    earlier = "", 0  # what was traced or lowered last, and for how long


class Compiles:
    """Hears of every compilation. Those of a call that is being watched are its own; the rest go into the ledger."""

    def __init__(self, patches: Patches) -> None:
        self._ledger: Ledger = patches.ledger
        self._thread = _Thread()
        # Written to by who watches a call, which is often and in a hurry.
        self.calling: set[int] = set()  # threads in a call that is being watched
        self.heard: dict[int, Spans] = {}  # of each of those, what was traced or compiled; mostly nothing
        monitoring.register_event_duration_secs_listener(self._hear)
        patches.undo_with(self._stop, api="compilations of JAX")

    def _hear(self, event: str, seconds: float, **kwargs: Any) -> None:
        if event not in _STAGES or not self._ledger.on:
            return
        end, length = perf_counter_ns(), int(seconds * 1e9)
        thread = get_ident()
        if thread in self.calling:
            self.heard.setdefault(thread, []).append((end - length, end))
            return
        self._hear_of_others(event, end, length, str(kwargs.get("fun_name", "")))

    def _hear_of_others(self, event: str, end: int, length: int, name: str) -> None:
        """A function is traced, lowered and compiled in a row; only the last is sure to come."""
        name = name.removeprefix("jit(").removesuffix(")")
        earlier, before = self._thread.earlier
        length += before if earlier == name else 0
        if event != _COMPILED:
            self._thread.earlier = name, length
            return
        self._thread.earlier = "", 0
        self._ledger.add(Kind.COMPILE, _API, end - length, end=end, detail={"function": name} if name else None)

    def _stop(self) -> None:
        """The public module can only forget all listeners, the user's among them."""
        with suppress(Exception):  # in a version that cannot, it stays, and hears nothing once the ledger is off
            if self._hear in listeners.get_event_duration_listeners():
                _unregister(self._hear)
