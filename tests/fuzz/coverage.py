"""The lines of Forebay that ran. The fuzzer prefers inputs that reach new lines.

No coverage-guided fuzzer for Python has wheels for ARM and x86-64 and a permissive licence, so `--guided` uses the
tracing of the interpreter. Tracing shows the lines of Forebay's own parsers, but not of C libraries.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import forebay

__all__ = ["LineCoverage"]

_PACKAGE = str(Path(forebay.__file__).parent)


class LineCoverage:
    """Collects the lines that ran. `new_lines` counts lines that no earlier input reached."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        self.new_lines = 0

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the lines of the `with` block, in all threads that start inside it."""
        before = len(self._seen)
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.new_lines = len(self._seen) - before

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._trace if frame.f_code.co_filename.startswith(_PACKAGE) else None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._trace
