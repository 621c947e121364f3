"""`KerasWatch`: the doctor as a callback of Keras, on any backend."""

import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import keras

from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.model.capture import Capture
from forebay.doctor.watch_context import Watch, watch
from forebay.errors import CaptureError

__all__ = ["KerasWatch"]


class KerasWatch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Watches a `fit` until enough steps were seen, and shows the report when it ends.

        seen = KerasWatch(html="report.html")
        model.fit(x, y, callbacks=[seen])
        seen.verdict.main

    The watch begins when the callback is made, for `fit` makes its input pipeline before it calls anybody; a `fit`
    that is called with the same callback later is watched anew, from when it asks for the callback first.
    """

    _latest: ClassVar["ref[KerasWatch] | None"] = None  # who began to watch last

    def __init__(self, *, html: str | Path | None = None, warm_up: int = 10, steps: int = 50) -> None:
        super().__init__()
        self._html = html
        self._steps = {"warm_up": warm_up, "steps": steps}
        self._watch: Watch | None = None
        self._going_on = ExitStack()
        self._is_watching = False
        self._begin()

    @property
    def capture(self) -> Capture:
        return self._ended().capture

    @property
    def verdict(self) -> Verdict:
        return self._ended().verdict

    def set_model(self, model: Any) -> None:
        """Called by `fit` before it compiles the step."""
        super().set_model(model)
        before = KerasWatch._latest() if KerasWatch._latest is not None else None
        if before is not None and before is not self:
            before.close()  # its `fit` has failed, or never came
        self._begin()

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._is_watching:
            warnings.warn("forebay: something else is being watched, so this `fit` is not.", stacklevel=2)

    def on_train_end(self, logs: Any = None) -> None:
        if not self._is_watching:
            return
        self.close()
        found = self._ended()
        if self._html is not None:
            found.save_html(self._html)
        _show(found)

    def close(self) -> None:
        """End the watch without a report, where `fit` came to no end of its own."""
        self._is_watching = False
        self._going_on.close()

    def __del__(self) -> None:
        if "_going_on" in vars(self):
            self.close()

    def _begin(self) -> None:
        """Unless this one watches already, or somebody else does."""
        if self._is_watching:
            return
        try:
            self._watch = self._going_on.enter_context(watch(**self._steps))
        except RuntimeError:
            return
        self._is_watching, KerasWatch._latest = True, ref(self)

    def _ended(self) -> Watch:
        if self._watch is None:
            raise CaptureError("nothing was watched: give this callback to `model.fit` first.")
        return self._watch


def _show(found: Watch) -> None:
    """As a notebook shows things where this is one, else in words."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ == "ZMQInteractiveShell":
        sys.modules["IPython"].display.display(found)
        return
    found.show()
