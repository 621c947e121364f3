"""`watch()`: the doctor inside a program or a notebook's cell."""

import sys
from types import TracebackType
from typing import Any, Self

from forebay.doctor.analyse.verdict import Verdict, judge
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Stepping
from forebay.doctor.captured import Capture
from forebay.errors import CaptureError

__all__ = ["Watch", "watch"]


def watch(*, warm_up: int = 10, steps: int = 50) -> "Watch":
    """Watch what runs inside `with`, until enough steps were seen or it ends."""
    return Watch(Stepping(warm_up=warm_up, steps=steps))


class Watch:
    """What is being watched, and what came of it once that has ended."""

    def __init__(self, stepping: Stepping) -> None:
        self._session = Session(stepping)
        self._capture: Capture | None = None

    def __enter__(self) -> Self:
        self._session.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.stop()
        ended = "done" if error is None else f"{type(error).__name__}: {error}"
        self._capture = self._session.capture(sys.argv[0] or "a session", ended=ended)

    @property
    def capture(self) -> Capture:
        if self._capture is None:
            raise CaptureError("the watch goes on: leave its `with` block first.")
        return self._capture

    @property
    def verdict(self) -> Verdict:
        return judge(self.capture)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """A notebook shows the report of a watch that is the last value of its cell."""
        return {"text/plain": repr(self)}
