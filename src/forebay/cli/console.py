"""Output of the commands: results on stdout, progress and errors on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from forebay.core.progress_line import ProgressLine
from forebay.doctor.model.formatting import replace_control_characters

__all__ = ["SCHEMA_VERSION", "SafeConsole", "error_console", "print_json", "report_progress", "result_console"]

SCHEMA_VERSION = 1  # of the JSON that commands print; the file of `forebay doctor --json` has a version of its own


class SafeConsole(Console):
    """Prints spaces instead of control characters.

    Without this, text from an untrusted file could send escape sequences to the terminal.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_replace_in_lines(segment.text))


def _replace_in_lines(text: str) -> str:
    return "\n".join(map(replace_control_characters, text.split("\n")))


def result_console() -> Console:
    """Return a console for stdout. Rich respects NO_COLOR and writes plain text into a pipe."""
    return SafeConsole(highlight=False, emoji=False)


def error_console() -> Console:
    """Return a console for stderr."""
    return SafeConsole(stderr=True, highlight=False, emoji=False)


@contextmanager
def report_progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show a progress line in the `with` block; yield a function that changes its text.

    If stderr is not a terminal, show nothing.
    """
    with ProgressLine(text) as progress:

        def change(text: str) -> None:
            progress.text = text

        yield change


def print_json(document: dict[str, Any]) -> None:
    """Print a document to stdout as JSON, with its schema version."""
    json.dump({"schema_version": SCHEMA_VERSION, **document}, sys.stdout, indent=1)
    sys.stdout.write("\n")
