"""`watch()`: the doctor inside a program or a notebook's cell."""

import sys
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import Stepping
from forebay.doctor.diagnosis.diagnose import Verdict, judge
from forebay.doctor.model.capture import Capture
from forebay.doctor.report.html import card, save_page
from forebay.doctor.report.sentences import headline
from forebay.doctor.report.terminal import render
from forebay.errors import CaptureError

__all__ = ["Watch", "watch"]


def watch(*, warm_up: int = 10, steps: int = 50) -> "Watch":
    """Watch what runs inside `with`, until enough steps were seen or it ends."""
    return Watch(Stepping(warm_up=warm_up, steps=steps))


class Watch:
    """What is being watched, and what came of it once that has ended. As the last value of a cell it is the report."""

    def __init__(self, stepping: Stepping) -> None:
        self._session = Session(stepping)
        self._outer: Session | None = None  # who watches already
        self._capture: Capture | None = None

    def __enter__(self) -> Self:
        if self._capture is not None:
            raise CaptureError("this watch has ended: call watch() again for another.")
        outer = Session.of_script()
        if outer is None:
            self._session.start()
        else:  # what it sees is what it would have seen here, and what came before
            self._outer = outer
            outer.ledger.note("watch() tells what `forebay doctor` has seen so far: that watches all of the script.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outer is None:
            self._session.stop()
        seen = self._outer or self._session
        self._capture = seen.capture(sys.argv[0] or "a session", ended=_ended(error))

    @property
    def capture(self) -> Capture:
        if self._capture is None:
            raise CaptureError("the watch goes on: leave its `with` block first.")
        return self._capture

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.capture)

    def show(self) -> None:
        """Print the report as `forebay doctor` does."""
        console = Console(highlight=False, emoji=False)
        console.print(render(self.verdict, width=console.width))

    def save_html(self, path: str | Path) -> None:
        """Write the whole report as one file for a browser."""
        save_page(self.verdict, path)

    def __repr__(self) -> str:
        return f"<Watch: {'it goes on' if self._capture is None else headline(self.verdict)}>"

    def _repr_html_(self) -> str | None:
        return None if self._capture is None else card(self.verdict)


def _ended(error: BaseException | None) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"  # the usual end of a cell that has trained for long enough
    return "done" if error is None else f"{type(error).__name__}: {error}"
