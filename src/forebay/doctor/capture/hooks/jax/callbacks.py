"""A hook that times the Python functions that jitted functions call: `jax.debug.print`, `jax.pure_callback` and others.

JAX lowers all these callbacks through one function, which the hook replaces. The hook passes on a callback that also
records its time.
"""

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from jax._src import callback as callbacks
from jax._src import source_info_util
from jax._src.interpreters import mlir

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["hook_callbacks"]

API = "jax callbacks"
_OWNER = callbacks if hasattr(callbacks, "emit_python_callback") else mlir  # `mlir` in older versions of JAX
# Name of the primitive -> API name in events.
_API_NAMES = {
    "debug_callback": "jax.debug.callback",
    "debug_print": "jax.debug.print",
    "io_callback": "jax.experimental.io_callback",
    "pure_callback": "jax.pure_callback",
}


def hook_callbacks(patches: Patches) -> None:
    timer = _CallbackTimer(patches)
    patches.replace(_OWNER, "emit_python_callback", timer.hook_emit, api=API)
    patches.add_undo(timer.stop, api=API)


class _CallbackTimer:
    """Times callbacks until `stop`.

    Compiled functions keep the callbacks that record their time. After `stop`, these callbacks only forward calls.
    """

    def __init__(self, patches: Patches) -> None:
        self._ledger = patches.ledger
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False

    def hook_emit(self, original: Any) -> Any:
        def hook(ctx: Any, callback: Any, *args: Any, **kwargs: Any) -> Any:
            timed = [callback]
            run_guarded(self._ledger, API, self._replace, timed, ctx)
            return original(ctx, timed[0], *args, **kwargs)

        return hook

    def _replace(self, callback: list[Callable[..., Any]], ctx: Any) -> None:
        """Replace the callback by one that records its time.

        On TPUs, keep the callback, because JAX sends it to another process. `callback` is a list with one item, because
        `run_guarded` returns no result.
        """
        if ctx.module_context.platforms[0] == "tpu":
            return
        name = getattr(ctx.primitive, "name", "")
        # In older versions of JAX, the context has no traceback.
        traceback = getattr(ctx, "traceback", None) or source_info_util.current().traceback
        line = self._ledger.lines.first_user_line(_frames(traceback))
        if line < 0:
            line = self._ledger.lines.current_line()
        callback[0] = self._make_timed(callback[0], (EventKind.CALLBACK, _API_NAMES.get(name, name), line))

    def _make_timed(self, callback: Callable[..., Any], site: tuple[str, str, int]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            if not self._is_on or not self._ledger.is_on:
                return callback(*args)
            start = perf_counter_ns()
            try:
                return callback(*args)
            finally:
                self._ledger.append(site, start, perf_counter_ns())

        return timed


def _frames(traceback: Any) -> Iterator[tuple[str, int, str]]:
    """Yield file, line number and function of each frame of a JAX traceback, innermost first."""
    for frame in traceback.frames if traceback is not None else ():
        yield frame.file_name, frame.line_num, frame.function_name
