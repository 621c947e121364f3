"""A stderr that is a terminal, for tests of progress lines."""

import io
import threading
from types import SimpleNamespace

from forebay.core import progress_line

__all__ = ["Terminal", "show_progress_at_once"]


class Terminal(io.StringIO):
    """A stderr that is a terminal. It sets the event `drawn` when something is written to it."""

    def __init__(self):
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        self.drawn.set()
        return super().write(text)


def show_progress_at_once(monkeypatch):
    """Return a terminal on which progress lines appear without delay."""
    stderr = Terminal()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=stderr))  # pytest itself replaces sys.stderr
    monkeypatch.setattr(progress_line, "SHOW_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "REDRAW_SECONDS", 0.001)
    return stderr
