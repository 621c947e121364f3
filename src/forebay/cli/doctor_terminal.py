"""The terminal of the doctor: copies of stdout and stderr.

The doctor prints on the copies, so it can print even if the script closes or redirects stdout and stderr.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TextIO

from rich.console import RenderableType

from forebay.cli.console import SafeConsole

if sys.platform != "win32":
    import fcntl

__all__ = ["DoctorTerminal", "reserved_descriptors"]

# The lowest file descriptor of a copy. Scripts that close all descriptors from 3 on, as daemons do, often stop at 256.
FIRST_COPY = 300


class DoctorTerminal:
    """Prints reports on stdout and status lines on stderr. Create it before the script runs."""

    def __init__(self) -> None:
        self._stdout, self._stderr = _StreamCopy(sys.stdout), _StreamCopy(sys.stderr)
        self.width = self._stdout.console.width  # columns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the copies of the streams."""
        self._stdout.close()
        self._stderr.close()

    def end_script_output(self) -> None:
        """Write what the script has left in its buffers, and end its last line."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the script may have closed the stream or replaced it by any object
                stream.flush()
        with suppress(OSError):
            self._stdout.print("")

    def report(self, renderable: RenderableType) -> bool:
        """Print a part of the report; return False if it could not be printed."""
        try:
            self._stdout.print(renderable)
        except OSError as error:
            self.status(f"the report could not be printed: {error}. Write it to a file with --html.", style="red")
            return False
        return True

    def status(self, text: str, *, style: str) -> None:
        """Print one line to stderr. Without a usable stderr, print nothing."""
        with suppress(OSError):
            # soft_wrap keeps long paths on one line, so that they can be copied.
            self._stderr.print(f"forebay doctor: {text}", style=style, markup=False, soft_wrap=True)


class _QuietConsole(SafeConsole):
    """Stops printing when the reader of a pipe, such as `head`, has closed it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class _StreamCopy:
    """Prints on a copy of a stream's file descriptor.

    If the stream has no file descriptor, it prints on the stream itself.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._copy: TextIO | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of the copied file
        if stream is not None:
            with suppress(AttributeError, OSError, ValueError):  # the stream is no file, for example in a notebook
                self._copy = _duplicate(stream)
                self._identity = _identity(self._copy.fileno())
        self.console = _QuietConsole(file=self._copy or stream, quiet=stream is None, highlight=False, emoji=False)

    def print(self, renderable: RenderableType, **options: Any) -> None:
        if self._copy is not None and _identity(self._copy.fileno()) != self._identity:
            # The script has closed the descriptor, which may belong to another file now.
            raise OSError("the script has closed the terminal of the doctor")
        with suppress(BrokenPipeError):
            self.console.print(renderable, **options)

    def close(self) -> None:
        if self._copy is not None:
            with suppress(OSError):
                self._copy.close()


def _duplicate(stream: TextIO) -> TextIO:
    """Return a stream for the same file. It replaces characters that the terminal cannot show."""
    if sys.platform == "win32":
        descriptor = os.dup(stream.fileno())
    else:
        descriptor = fcntl.fcntl(stream.fileno(), fcntl.F_DUPFD_CLOEXEC, FIRST_COPY)
    return os.fdopen(descriptor, "w", encoding=stream.encoding, errors="replace")


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


@contextmanager
def reserved_descriptors() -> Iterator[None]:
    """Reserve the descriptors of stdin, stdout and stderr if the script has closed them.

    Without this, an output file of the doctor could get one of these descriptors. The script would then print into it.
    """
    reserved: list[int] = []
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        reserved.append(descriptor)
    os.close(descriptor)
    try:
        yield
    finally:
        for descriptor in reserved:
            with suppress(OSError):
                os.close(descriptor)
