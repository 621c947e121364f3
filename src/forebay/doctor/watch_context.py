"""`watch()`: a context manager that profiles the code inside its `with` block."""

import warnings
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from forebay.doctor.capture.notebook_cells import session_name
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.report.html import render_card, save_page
from forebay.doctor.report.sentences import format_headline
from forebay.doctor.report.terminal import render
from forebay.errors import CaptureError

__all__ = ["Watch", "watch"]


def watch(*, warm_up: int = 10, steps: int = 50) -> "Watch":
    """Return a context manager that profiles its block.

    After the profiled steps, the context manager also records the GPU in some steps, if there is one. Then it removes
    all hooks except the hook that marks the steps, and times some steps. If the block ends earlier, profiling ends with
    the block.

    Args:
        warm_up: The number of steps at the start that profiling ignores.
        steps: The approximate number of steps to profile after the warm-up.
    """
    return Watch(StepDetector(warm_up=warm_up, steps=steps))


class Watch:
    """Profiles a `with` block, then provides its capture, diagnosis and report.

    A notebook displays the report if the Watch is the last value of a cell.
    """

    def __init__(self, detector: StepDetector) -> None:
        self._session = Session(detector)
        self._script_session: Session | None = None  # set inside `with` if `forebay doctor` runs the script
        self._capture: Capture | None = None

    def __enter__(self) -> Self:
        if self._capture is not None:
            raise CaptureError("this watch has ended. Call watch() again to profile another block.")
        self._script_session = Session.find_script_session()
        if self._script_session is None:
            self._session.start()
        else:  # only one session can run at a time, so use that of `forebay doctor`
            self._script_session.ledger.note(
                "watch() reports everything that `forebay doctor` has recorded so far, because `forebay doctor` "
                "profiles the whole script."
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._script_session is None:
            self._session.stop()
        session = self._script_session or self._session
        self._capture = session.capture(session_name(), ended=_describe_end(error))

    @property
    def capture(self) -> Capture:
        """Everything that was recorded. Raises CaptureError before the block has ended."""
        if self._capture is None:
            raise CaptureError("this watch has no capture yet. Read it after its `with` block has ended.")
        return self._capture

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The findings of the capture, the largest gain first. Computed at first use."""
        return diagnose(self.capture)

    @property
    def verdict(self) -> Diagnosis:
        """Deprecated name of `diagnosis`."""
        warnings.warn("Watch.verdict is deprecated. Use Watch.diagnosis.", DeprecationWarning, stacklevel=2)
        return self.diagnosis

    def show(self) -> None:
        """Print the report as `forebay doctor` does."""
        console = Console(highlight=False, emoji=False)
        console.print(render(self.diagnosis, width=console.width))

    def save_html(self, path: str | Path) -> None:
        """Write the whole report as one HTML file.

        Args:
            path: The file to write.

        Examples:
            >>> import tempfile
            >>> from pathlib import Path
            >>> with watch(warm_up=2, steps=5) as profile:
            ...     total = sum(range(1000))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     profile.save_html(f"{folder}/report.html")
            ...     Path(folder, "report.html").read_text().startswith("<!doctype html>")
            True
        """
        save_page(self.diagnosis, path)

    def __repr__(self) -> str:
        return f"<Watch: {'no capture yet' if self._capture is None else format_headline(self.diagnosis)}>"

    def _repr_html_(self) -> str | None:
        return None if self._capture is None else render_card(self.diagnosis)


def _describe_end(error: BaseException | None) -> str:
    """Return `Capture.ended` for a block that raised `error`; None: the block raised nothing."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"  # not an error: users interrupt a notebook cell that has trained for long enough
    return "done" if error is None else type(error).__name__  # not the message, which may contain user data
