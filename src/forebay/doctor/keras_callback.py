"""`KerasWatch`: a Keras callback that profiles `fit`, on any backend."""

import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import keras

from forebay.doctor.capture.session import RunningSessionError
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.capture import Capture
from forebay.doctor.watch_context import Watch, watch
from forebay.errors import CaptureError

__all__ = ["KerasWatch"]

_NOT_PROFILED = "forebay: another watch is running, so this `fit` is not profiled. End that watch before `fit`."


class KerasWatch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Profiles a call of `fit` and shows the report when `fit` ends.

    Profiling starts when the callback is created, because `fit` builds its input pipeline before it calls any callback.
    If the script passes this callback to `fit` again, each further `fit` gets a capture of its own. The
    profiling of a further `fit` starts when Keras calls `set_model`, before `fit` compiles the training step.

    Args:
        html: The path of an HTML report to write.
        warm_up: The number of steps at the start that profiling ignores.
        steps: The approximate number of steps to profile after the warm-up.

    Examples:
        >>> import numpy as np, keras
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> callback = KerasWatch(html="report.html", warm_up=5, steps=20)
        >>> x, y = np.ones((400, 2)), np.ones(400)
        >>> history = model.fit(x, y, batch_size=2, callbacks=[callback], verbose=0)  # doctest: +ELLIPSIS
        forebay doctor...
        >>> callback.diagnosis.view.step_seconds > 0
        True
    """

    _latest: ClassVar["ref[KerasWatch] | None"] = None  # the callback that was the last to start profiling

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
        """The capture of the last profiled `fit`. Raises CaptureError before that `fit` has ended."""
        return self._last_watch().capture

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of the last profiled `fit`. Raises CaptureError before that `fit` has ended."""
        return self._last_watch().diagnosis

    @property
    def verdict(self) -> Diagnosis:
        """Deprecated name of `diagnosis`."""
        warnings.warn("KerasWatch.verdict is deprecated. Use KerasWatch.diagnosis.", DeprecationWarning, stacklevel=2)
        return self.diagnosis

    def set_model(self, model: Any) -> None:
        """Start profiling if this callback is not profiling yet.

        `fit` calls this before it compiles the training step. If another KerasWatch is still profiling, stop it first.
        """
        super().set_model(model)
        previous = KerasWatch._latest() if KerasWatch._latest is not None else None
        if previous is not None and previous is not self:
            previous.close()  # it still profiles only if its `fit` failed or never started
        self._start()

    def on_train_begin(self, logs: Any = None) -> None:
        """Warn if this `fit` is not profiled."""
        if not self._is_profiling:
            warnings.warn(_NOT_PROFILED, stacklevel=2)

    def on_train_end(self, logs: Any = None) -> None:
        """Stop profiling, save the HTML report if requested, and show the report."""
        if not self._is_profiling:
            return
        self.close()
        ended_watch = self._last_watch()
        if self._html is not None:
            ended_watch.save_html(self._html)
        _show(ended_watch)

    def close(self) -> None:
        """Stop profiling without showing a report. Call this if `fit` fails."""
        self._is_profiling = False
        self._exit_stack.close()

    def __repr__(self) -> str:
        return "<KerasWatch: nothing profiled yet>" if self._watch is None else f"<KerasWatch: {self._watch!r}>"

    def _repr_html_(self) -> str | None:
        return None if self._watch is None else self._watch._repr_html_()

    def __del__(self) -> None:
        if "_exit_stack" in vars(self):  # False if `__init__` failed
            self.close()

    def _start(self) -> None:
        """Start profiling, unless this callback or another watch is already profiling."""
        if self._is_profiling:
            return
        try:
            self._watch = self._exit_stack.enter_context(watch(**self._options))
        except RunningSessionError:  # `on_train_begin` warns
            return
        self._is_profiling, KerasWatch._latest = True, ref(self)

    def _last_watch(self) -> Watch:
        if self._watch is None:
            raise CaptureError("nothing was profiled. Pass this callback to `model.fit` while no other watch runs.")
        return self._watch


def _show(ended_watch: Watch) -> None:
    """Display the report in a notebook, or print it in a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ == "ZMQInteractiveShell":
        sys.modules["IPython"].display.display(ended_watch)
        return
    ended_watch.show()
