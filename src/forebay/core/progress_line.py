"""A line on the terminal about work that takes more than two seconds."""

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import ClassVar, Self

from forebay.errors import escape_control_characters

__all__ = ["SHOW_AFTER_SECONDS", "BackgroundLine", "ProgressLine"]

SHOW_AFTER_SECONDS = 2.0  # Forebay draws no line for shorter work
REDRAW_SECONDS = 0.2
_ERASE_LINE = "\r\x1b[K"  # moves the cursor to the start of the line, then deletes to the end of the line


class ProgressLine:
    """Shows the work, its progress and the elapsed time in one line of stderr.

    `__exit__` erases the line. The class draws nothing if stderr is not a terminal, in threads other than the main
    thread, or inside of another progress line. While the main thread waits for another thread, `BackgroundLine` draws
    the line of that thread. A separate thread draws, so the work only sets the plain attributes `done` and `text`.

    Examples:
        >>> with ProgressLine("indexing a.tar", total=3) as line:
        ...     for line.done in range(3):
        ...         pass
    """

    _shown: "ProgressLine | None" = None  # the outermost progress line of the main thread, which is drawn
    _not_shown: ClassVar[list["ProgressLine"]] = []  # active progress lines of all threads that are not drawn
    _show_after_seconds: float | None = None  # if None, `SHOW_AFTER_SECONDS`

    def __init__(self, text: str, total: int | None = None) -> None:
        self.text, self.total, self.done = text, total, 0
        self._started_at, self._has_drawn = 0.0, False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._started_at = time.monotonic()
        if ProgressLine._shown is not None or threading.current_thread() is not threading.main_thread():
            ProgressLine._not_shown.append(self)
        elif _has_terminal():
            ProgressLine._shown = self
            self._thread = threading.Thread(target=self._run, name="forebay-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            if self in ProgressLine._not_shown:
                ProgressLine._not_shown.remove(self)
            return
        ProgressLine._shown = None
        self._ended.set()
        self._thread.join()
        if self._has_drawn:
            _write(_ERASE_LINE)

    def render(self, seconds: float, columns: int) -> str:
        """Return the text of the line, shortened to the terminal's width of `columns`."""
        share = f"{min(1.0, self.done / self.total):.0%}, " if self.total else ""
        line = escape_control_characters(f"forebay: {self.text} ({share}{seconds:.0f} s)").replace("\n", " ")
        return line if len(line) < columns else line[: max(0, columns - 4)] + "..."

    def _run(self) -> None:
        wait_seconds = self._show_after_seconds
        if self._ended.wait(SHOW_AFTER_SECONDS if wait_seconds is None else wait_seconds):
            return
        while not self._ended.wait(REDRAW_SECONDS):
            line = self.render(time.monotonic() - self._started_at, shutil.get_terminal_size().columns)
            if line or self._has_drawn:
                _write(_ERASE_LINE + line)
            self._has_drawn = bool(line)


class BackgroundLine(ProgressLine):
    """Shows the progress line of another thread while the main thread waits for that thread.

    It draws nothing while no other thread has a progress line.
    """

    _show_after_seconds = 0.0  # the feed creates this line when it has already waited for SHOW_AFTER_SECONDS

    def __init__(self) -> None:
        super().__init__("")

    def render(self, seconds: float, columns: int) -> str:
        """Return the newest line of another thread, with the elapsed time of its work."""
        newest = [line for line in list(ProgressLine._not_shown) if not isinstance(line, BackgroundLine)][-1:]
        return newest[0].render(time.monotonic() - newest[0]._started_at, columns) if newest else ""


def _has_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr may be None or closed
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # the user may close the terminal at any time
        return
