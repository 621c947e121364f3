"""The target line of an emulation, and whether it makes the current call."""

import threading
from collections.abc import Callable
from typing import Any

from forebay.doctor.capture.source_lines import SourceLines

__all__ = ["TargetLine"]


class _ThreadBypass(threading.local):
    """A flag of each thread: whether its calls run as written."""

    is_active = False


class TargetLine:
    """The line of user code whose calls an emulation replaces."""

    def __init__(self, file: str, number: int) -> None:
        self._location = file, number
        self._lines = SourceLines()
        self._bypass = _ThreadBypass()

    def is_calling(self) -> bool:
        """Whether this is the innermost line of user code on the stack, outside of `bypass`."""
        if self._bypass.is_active:
            return False
        line = self._lines.current_line()
        return line >= 0 and self._lines.locations[line][:2] == self._location

    def bypass(self, call: Callable[[], Any]) -> Any:
        """Run `call`, and all calls inside it, as written; return its result."""
        before, self._bypass.is_active = self._bypass.is_active, True
        try:
            return call()
        finally:
            self._bypass.is_active = before
