"""Whether it is one certain line of the user's that asks."""

import threading
from collections.abc import Callable
from typing import Any

from forebay.doctor.capture.source_lines import Lines

__all__ = ["Place"]


class _Thread(threading.local):
    calling = False  # as it is written


class Place:
    """One line of the user's."""

    def __init__(self, file: str, number: int) -> None:
        self._line = file, number
        self._lines = Lines()
        self._thread = _Thread()

    def is_here(self) -> bool:
        """Whether that line is the innermost of the user's on the stack, and it is not let through."""
        if self._thread.calling:
            return False
        found = self._lines.here()
        return found >= 0 and self._lines.found[found][:2] == self._line

    def let_through(self, call: Callable[[], Any]) -> Any:
        """Make a call as it is written, with all that it calls in turn."""
        before, self._thread.calling = self._thread.calling, True
        try:
            return call()
        finally:
            self._thread.calling = before
