"""`KerasWatch`: the doctor as a Keras callback, on any backend."""

import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import keras

from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.capture import Capture
from forebay.doctor.watch_context import Watch, watch
from forebay.errors import CaptureError

__all__ = ["KerasWatch"]


class KerasWatch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Profiles a `fit` until enough steps were recorded, and shows the report at its end.

        seen = KerasWatch(html="report.html")
        model.fit(x, y, callbacks=[seen])
        seen.diagnosis.main

    Profiling starts when the callback is created, because `fit` builds its input pipeline before it calls any callback.
    A later `fit` with the same callback is profiled separately, from its first call of the callback.
    """

    _latest: ClassVar["ref[KerasWatch] | None"] = None  # the callback that started to profile last

    def __init__(self, *, html: str | Path | None = None, warm_up: int = 10, steps: int = 50) -> None:
        super().__init__()
        self._html = html
        self._options = {"warm_up": warm_up, "steps": steps}
        self._watch: Watch | None = None
        self._exit_stack = ExitStack()
        self._is_profiling = False
        self._start()

    @property
    def capture(self) -> Capture:
        return self._last_watch().capture

    @property
    def diagnosis(self) -> Diagnosis:
        return self._last_watch().diagnosis

    @property
    def verdict(self) -> Diagnosis:
        """Deprecated name of `diagnosis`."""
        warnings.warn("KerasWatch.verdict is deprecated. Use KerasWatch.diagnosis.", DeprecationWarning, stacklevel=2)
        return self.diagnosis

    def set_model(self, model: Any) -> None:
        """Called by `fit` before it compiles the step."""
        super().set_model(model)
        previous = KerasWatch._latest() if KerasWatch._latest is not None else None
        if previous is not None and previous is not self:
            previous.close()  # its `fit` has failed or was never called
        self._start()

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._is_profiling:
            warnings.warn("forebay: another watch is running, so this `fit` is not profiled.", stacklevel=2)

    def on_train_end(self, logs: Any = None) -> None:
        if not self._is_profiling:
            return
        self.close()
        found = self._last_watch()
        if self._html is not None:
            found.save_html(self._html)
        _show(found)

    def close(self) -> None:
        """Stop profiling without a report, for a `fit` that did not end normally."""
        self._is_profiling = False
        self._exit_stack.close()

    def __del__(self) -> None:
        if "_exit_stack" in vars(self):
            self.close()

    def _start(self) -> None:
        """Start to profile, unless this callback or another watch already does."""
        if self._is_profiling:
            return
        try:
            self._watch = self._exit_stack.enter_context(watch(**self._options))
        except RuntimeError:
            return
        self._is_profiling, KerasWatch._latest = True, ref(self)

    def _last_watch(self) -> Watch:
        if self._watch is None:
            raise CaptureError("nothing was profiled. Pass this callback to `model.fit` first.")
        return self._watch


def _show(found: Watch) -> None:
    """Display the report in a notebook, or print it in a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ == "ZMQInteractiveShell":
        sys.modules["IPython"].display.display(found)
        return
    found.show()
